"""What a model reads of texts: the tokens that its vocabulary lacks, and the texts that are longer than its window."""

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
"""Model for captions in other languages than English, which sentence-transformers loads by this name."""
_PAGE = "docs/sources/sbert.md"
_UNKNOWN, _CUT = 0.01, 0.005  # shares of tokens and of captions that are worth a warning


class Reading(NamedTuple):
    """What a model reads of N texts, without its prompt and special tokens.

    `tokens`, `unknown`: (N,) int32; number of tokens, and of those that say nothing: the vocabulary lacks them, or they
        are the single letters into which most of a text is split, because its script is foreign to the model.
    `truncated`: (N,) bool; True if the model saw only the beginning of the text.
    `unreadable`: (N,) bool; True if the vocabulary has no word or letter of the text, so all such texts look alike.
    """

    tokens: NDArray[np.int32]
    unknown: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]

    def warnings(self, model: str, label: str, max_length: int | None, captions: int) -> Iterator[str]:
        """Yield what a user must know: unknown tokens and captions that are cut, if they are noticeable.

        `captions`: number of captions, of which these texts may be a sample.
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
    """The vocabulary of a tokenizer of the library `tokenizers`.

    `unknown`: id of the token for what the vocabulary lacks. `empty`: tokens of an empty text: special ones and the
    prompt.
    """

    def __init__(self, tokenizer: Tokenizer, unknown: int | None, empty: Sequence[int]) -> None:
        pieces = tokenizer.get_vocab()
        special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        # Rows: unknown tokens, single letters inside words, and pieces with a letter or digit.
        self._kinds = np.zeros((3, max(pieces.values()) + 1), bool)
        self._kinds[:, [*pieces.values()]] = np.array(
            [
                (i == unknown, len(piece) == 3 and piece[:2] == "##", i not in special and any(map(str.isalnum, piece)))
                for piece, i in pieces.items()
            ]
        ).T
        self._empty = self._count([empty])

    def read(self, tokens: Sequence[Sequence[int]], truncated: NDArray[np.bool_]) -> Reading:
        """Return what a model reads of N texts, given their tokens, with special ones, and which of them are cut."""
        length, unknown, letters, words = self._count(tokens) - self._empty
        # Texts of punctuation are readable, and so is every text of a vocabulary that has every byte.
        unreadable = (unknown > 0) & (words <= 0)
        return Reading(length, unknown + np.where(2 * letters > length, letters, 0), truncated, unreadable)

    def _count(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.int32]:
        """Return the number of tokens of each text, all and by kind: (4, N)."""
        lengths = np.array([len(ids) for ids in tokens])
        text, flat = np.repeat(np.arange(len(tokens)), lengths), np.fromiter(chain.from_iterable(tokens), np.int64)
        counts = [np.bincount(text[kind[flat]], minlength=len(tokens)) for kind in self._kinds]
        return np.array([lengths, *counts], np.int32)
