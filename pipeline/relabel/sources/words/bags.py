"""Captions as weighted bags of words, one sparse row a distinct text; a bag's vector is one sparse product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class WordBags:
    """N captions, U distinct texts among them, T words in those, V distinct words.

    Attributes
    ----------
    vocabulary : list of str
        V words.
    indptr : (U + 1,) int64
    words : (T,) int32
        Text u has the words ``words[indptr[u]:indptr[u + 1]]``, repeats kept.
    weights : (T,) float64
    text_of : (N,) int64
        Each caption's distinct text.
    """

    vocabulary: list[str]
    indptr: NDArray[np.int64]
    words: NDArray[np.int32]
    weights: NDArray[np.float64]
    text_of: NDArray[np.int64]

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> WordBags:
        """Make bags of texts whose words are separated by single spaces; every word weighs 1."""
        encoded = pa.array(texts, pa.string()).dictionary_encode()
        lists = pc.split_pattern(encoded.dictionary, " ")
        flat = pc.list_flatten(lists).dictionary_encode()
        words = flat.indices.to_numpy()
        indptr = np.zeros(len(lists) + 1, np.int64)
        np.cumsum(pc.list_value_length(lists).to_numpy(), out=indptr[1:])
        bags = cls(flat.dictionary.to_pylist(), indptr, words, np.ones(len(words)), encoded.indices.to_numpy())
        return bags._without_empty_words()

    @classmethod
    def from_weighted_words(cls, texts: Sequence[Iterable[tuple[str, float]]], text_of: NDArray[np.int64]) -> WordBags:
        """Make bags of (word, weight) pairs, one iterable a distinct text."""
        number: dict[str, int] = {}
        indptr, words, weights = [0], [], []
        for text in texts:
            for word, weight in text:
                words.append(number.setdefault(word, len(number)))
                weights.append(weight)
            indptr.append(len(words))
        return cls(list(number), np.array(indptr), np.array(words, np.int32), np.array(weights, np.float64), text_of)

    def counts(self) -> NDArray[np.int64]:
        """(V,) int64: how often each word is there, over all captions."""
        copies = np.bincount(self.text_of, minlength=len(self.indptr) - 1)
        each = np.repeat(copies, np.diff(self.indptr))
        return np.bincount(self.words, each, len(self.vocabulary)).astype(np.int64)

    def unit_vectors(self, vectors: NDArray[np.float64], captions: slice) -> NDArray[np.float32]:
        """Sum the word vectors of captions and scale to length 1; the mean has the same direction.

        Parameters
        ----------
        vectors : (V, D) float64
            A row a word of `vocabulary`, zeros for those without a vector.
        captions : slice
            Which of the N.

        Returns
        -------
        (n, D) float32
            Unit vectors; zeros for a caption without any known word.
        """
        texts, back = np.unique(self.text_of[captions], return_inverse=True)
        total: Any = self._matrix()[texts] @ vectors
        length = np.linalg.norm(total, axis=1, keepdims=True)
        unit = np.divide(total, length, out=np.zeros_like(total), where=length > 0).astype(np.float32)
        return np.asarray(unit[back])

    def _matrix(self) -> csr_array:
        from scipy.sparse import csr_array

        shape = (len(self.indptr) - 1, len(self.vocabulary))
        return csr_array((self.weights, self.words, self.indptr), shape=shape)

    def _without_empty_words(self) -> WordBags:
        """Drop the word '' that splitting an empty text gives."""
        if "" not in self.vocabulary:
            return self
        empty = self.vocabulary.index("")
        kept = self.words != empty
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        words = self.words[kept]
        return WordBags(
            [w for w in self.vocabulary if w],
            indptr,
            words - (words > empty).astype(np.int32),
            self.weights[kept],
            self.text_of,
        )
