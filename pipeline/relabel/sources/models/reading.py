"""Statistics of the tokens that a model reads: unknown tokens and truncated texts, with warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.tables import plural

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MULTILINGUAL = "paraphrase-multilingual-MiniLM-L12-v2"
"""Name of a sentence-transformers model for captions in other languages than English."""
_PAGE = "docs/sources/sbert.md"
_UNKNOWN, _CUT = 0.01, 0.005  # minimum shares of unknown tokens and of truncated captions for a warning


class Reading(NamedTuple):
    """Statistics of the tokens of N texts, without prompt and special tokens.

    `tokens`, `unknown`: (N,) int32; number of tokens, and of uninformative tokens: unknown ones, and single letters if
        more than half of the text is split into letters, because the model does not support its script.
    `truncated`: (N,) bool; True if the model reads only the beginning of the text.
    `unreadable`: (N,) bool; True if the vocabulary has no word or letter of the text. All such texts have equal tokens.
    """

    tokens: NDArray[np.int32]
    unknown: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]

    def warnings(self, model: str, label: str, max_length: int | None, captions: int) -> Iterator[str]:
        """Yield warnings about unknown tokens and truncated captions, if there are many.

        `captions`: total number of captions; these texts may be a sample.
        """
        count, cut, share = len(self.tokens), int(self.truncated.sum()), self.unknown.sum() / max(1, self.tokens.sum())
        sample, option = f"in a sample of {count:,}: " if count < captions else "", f"--set sources.{label}"
        if share > _UNKNOWN:
            problem = f"does not know all words of {np.count_nonzero(self.unknown):,} of {count:,} captions"
            remedy = f"Use a multilingual model: {option}.model={MULTILINGUAL} (model= in Python)"
            unknown = f"{share:.1%} of the tokens are unknown or single letters"
            yield f"{sample}{model} {problem}: {unknown}. {remedy}; see {_PAGE}"
        if cut > _CUT * count:
            problem = f"{plural(cut, 'caption is', 'captions are')} longer than {max_length:,} tokens"
            remedy = f"Raise the limit ({option}.max_length=N, max_length= in Python) or use another model"
            yield f"{sample}{problem}: the rest is not read. {remedy}; see {_PAGE}"


class Vocabulary:
    """Vocabulary of a tokenizer from the library `tokenizers`.

    `unknown`: id of the unknown token. `empty`: tokens of an empty text: special tokens and the prompt.
    """

    def __init__(self, tokenizer: Tokenizer, unknown: int | None, empty: Sequence[int]) -> None:
        pieces = tokenizer.get_vocab()
        special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        # Rows: unknown tokens, single letters inside words, and tokens with a letter or digit.
        self._kinds = np.zeros((3, max(pieces.values()) + 1), bool)
        self._kinds[:, [*pieces.values()]] = np.array(
            [
                (i == unknown, len(piece) == 3 and piece[:2] == "##", i not in special and any(map(str.isalnum, piece)))
                for piece, i in pieces.items()
            ]
        ).T
        self._empty = self._count([empty])

    def read(self, tokens: Sequence[Sequence[int]], truncated: NDArray[np.bool_]) -> Reading:
        """Compute statistics of N texts, given their tokens (with special tokens) and a mask of truncated texts."""
        length, unknown, letters, words = self._count(tokens) - self._empty
        # Punctuation is readable. With a byte-level vocabulary, all texts are readable.
        unreadable = (unknown > 0) & (words <= 0)
        return Reading(length, unknown + np.where(2 * letters > length, letters, 0), truncated, unreadable)

    def _count(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.int32]:
        """Return the number of tokens of each text, in total and by kind: (4, N)."""
        lengths = np.array([len(ids) for ids in tokens])
        text, flat = np.repeat(np.arange(len(tokens)), lengths), np.fromiter(chain.from_iterable(tokens), np.int64)
        counts = [np.bincount(text[kind[flat]], minlength=len(tokens)) for kind in self._kinds]
        return np.array([lengths, *counts], np.int32)
