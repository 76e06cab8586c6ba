"""Two captions as one row of token ids, without the tokenizer: each caption is tokenized once, alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
_FIRST, _SECOND = "a man rides a red bike", "two dogs sit"
_PROBES = (
    ("Two dogs.", "A man with a red helmet on a small moped on a dirt road."),
    ("Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!", "a"),
    ("TWO CATS", "TWO CATS"),
)


@dataclass(frozen=True, eq=False)
class Texts:
    """Distinct texts as token ids, without special tokens.

    Attributes
    ----------
    ids : (indptr[-1],) int32
        Text t is ``ids[indptr[t]:indptr[t + 1]]``.
    indptr : (T + 1,) int64
    """

    ids: I4
    indptr: I8

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Texts:
        """Join texts."""
        indptr = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(one) for one in lists], out=indptr[1:])
        return cls(np.array([i for one in lists for i in one], np.int32), indptr)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, t: int) -> I4:
        return self.ids[self.indptr[t] : self.indptr[t + 1]]

    @property
    def sizes(self) -> I8:
        """Ids of each text, (T,) int64."""
        return np.diff(self.indptr)


@dataclass(frozen=True)
class Frame:
    """What a tokenizer puts around two texts: special tokens, and the type of each token.

    Attributes
    ----------
    head, middle, tail : tuple of int
        Special tokens before, between and after.
    types : tuple of five int, or None
        Token types of head, first text, middle, second text and tail; None where the model takes none.
    """

    head: tuple[int, ...]
    middle: tuple[int, ...]
    tail: tuple[int, ...]
    types: tuple[int, int, int, int, int] | None

    @property
    def size(self) -> int:
        """Special tokens of a pair."""
        return len(self.head) + len(self.middle) + len(self.tail)

    @classmethod
    def of(cls, tokenizer: Any, folder: Path) -> Frame:
        """Learn the frame from one pair, and hold it against a few more.

        Raises
        ------
        UsageError
            If the tokenizer joins texts in another way.
        """
        found = cls._learned(tokenizer)
        for first, second in _PROBES if found is not None else ():
            a, b = plain_ids(tokenizer, [first, second], None)
            whole = tokenizer(first, second)
            row = found.row(np.array(a, np.int32), np.array(b, np.int32))  # type: ignore[union-attr]
            given = [whole["input_ids"], whole.get("token_type_ids") or [0] * len(row[0])]
            if [part.tolist() for part in row] != given:
                found = None
                break
        if found is None:
            what = "this model's tokenizer does not join two texts by special tokens alone"
            raise UsageError(what, where=str(folder), todo="Name another `model`.")
        return found

    def row(self, first: I4, second: I4) -> tuple[I8, I8]:
        """Lay out one pair: ids and token types."""
        ids = np.concatenate([self.head, first, self.middle, second, self.tail]).astype(np.int64)
        parts = (len(self.head), len(first), len(self.middle), len(second), len(self.tail))
        return ids, np.repeat(np.array(self.types or (0,) * 5, np.int64), parts)

    @classmethod
    def _learned(cls, tokenizer: Any) -> Frame | None:
        a, b = plain_ids(tokenizer, [_FIRST, _SECOND], None)
        whole = tokenizer(_FIRST, _SECOND)
        ids, types = list(whole["input_ids"]), whole.get("token_type_ids")
        at = next((i for i in range(len(ids)) if ids[i : i + len(a)] == a), -1)
        then = next((i for i in range(at + len(a), len(ids)) if ids[i : i + len(b)] == b), -1)
        if min(at, then) < 0:
            return None
        cuts = (0, at, at + len(a), then, then + len(b), len(ids))
        head, middle, tail = (tuple(ids[cuts[i] : cuts[i + 1]]) for i in (0, 2, 4))
        if types is None:
            return cls(head, middle, tail, None)
        kinds = [types[cuts[i]] if cuts[i] < cuts[i + 1] else 0 for i in range(5)]
        return cls(head, middle, tail, (kinds[0], kinds[1], kinds[2], kinds[3], kinds[4]))


def plain_ids(tokenizer: Any, texts: Sequence[str], most: int | None) -> list[list[int]]:
    """Token ids of each text, without special tokens, cut to `most`."""
    cut = {"truncation": True, "max_length": most} if most is not None else {}
    options = {"add_special_tokens": False, "padding": False, "return_attention_mask": False, "verbose": False}
    found: list[list[int]] = tokenizer(list(texts), **options, **cut)["input_ids"] if len(texts) else []
    return found


def cut_lengths(first: I8, second: I8, room: int) -> tuple[I8, I8]:
    """Cut P pairs to `room` ids, the longer text first, as tokenizers do: each text is sure of half.

    Parameters
    ----------
    first, second : (P,) int64
        Ids of each text.
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    kept = np.minimum(long, np.maximum(short, room - short))
    over = short + kept > room
    short, kept = np.where(over, room // 2, short), np.where(over, room - room // 2, kept)
    swapped = first > second
    return np.where(swapped, kept, short), np.where(swapped, short, kept)
