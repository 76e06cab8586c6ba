"""Words of captions as numbers: lower case, letters and digits in a row, words seen often enough."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

PAD, UNKNOWN, START, END = range(4)
_SPECIAL = ("<pad>", "<unk>", "<start>", "<end>")
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")


def words(text: str) -> list[str]:
    """Cut a caption into words: `A man's dog.` is a, man's, dog."""
    return _WORD.findall(text.lower())


class Vocabulary:
    """Words and their numbers; 0 to 3 are padding, unknown words, a caption's start and its end.

    Parameters
    ----------
    known : sequence of str
        Words, numbered from 4.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self.words = (*_SPECIAL, *known)
        self._number = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def of(cls, texts: Iterable[str], least: int = 4) -> Vocabulary:
        """Take the words that stand in the texts `least` times or more; by (-count, word)."""
        counts = Counter(word for text in texts for word in words(text))
        kept = sorted((word for word, n in counts.items() if n >= least), key=lambda word: (-counts[word], word))
        return cls(kept)

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read what `to_json` gave.

        Raises
        ------
        ValueError
            If the file is no vocabulary.
        """
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, list) or tuple(found[:4]) != _SPECIAL:
            raise ValueError(f"{path}: not a vocabulary")
        return cls(found[4:])

    def to_json(self) -> str:
        """As a JSON list, the position is the number."""
        return json.dumps(self.words, ensure_ascii=False, indent=0) + "\n"

    def __len__(self) -> int:
        return len(self.words)

    def __call__(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return (B, T) int64 numbers, padded with 0, and (B,) int64 how many count, start and end among them."""
        rows = [[START, *(self._number.get(w, UNKNOWN) for w in words(text)), END] for text in texts]
        lengths = torch.tensor([len(row) for row in rows])
        out = torch.full((len(rows), max(map(len, rows), default=0)), PAD)
        for i, row in enumerate(rows):
            out[i, : len(row)] = torch.tensor(row)
        return out, lengths
