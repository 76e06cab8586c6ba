"""Captions as weighted bags of words: one sparse row per distinct text, so a bag's vector is one sparse product."""

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
    """Bags of words of N captions: U distinct texts with T words in total, V of them distinct.

    Attributes
    ----------
    vocabulary : list of str
        V words.
    indptr : (U + 1,) int64
    words : (T,) int32
        Text u has the words ``words[indptr[u]:indptr[u + 1]]``, with repetitions.
    weights : (T,) float64
    text_of : (N,) int64
        Distinct text of each caption.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.words.bags import WordBags
    >>> bags = WordBags.from_texts(["a dog", "two dogs", "a dog"])
    >>> bags.vocabulary, bags.text_of.tolist(), bags.counts().tolist()
    (['a', 'dog', 'two', 'dogs'], [0, 1, 0], [2, 2, 1, 1])
    >>> bags.unit_vectors(np.array([[3, 0], [0, 4], [0, 1], [0, 1]]), slice(0, 2)).round(1).tolist()
    [[0.6..., 0.8...], [0.0, 1.0]]
    """

    vocabulary: list[str]
    indptr: NDArray[np.int64]
    words: NDArray[np.int32]
    weights: NDArray[np.float64]
    text_of: NDArray[np.int64]

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> WordBags:
        """Make bags of texts whose words are separated by single spaces; every word has weight 1."""
        encoded = pa.array(texts, pa.string()).dictionary_encode()
        # Split each distinct text once; Arrow keeps the strings outside of Python.
        lists = pc.split_pattern(encoded.dictionary, " ")
        flat = pc.list_flatten(lists).dictionary_encode()
        words = flat.indices.to_numpy()
        indptr = np.zeros(len(lists) + 1, np.int64)
        np.cumsum(pc.list_value_length(lists).to_numpy(), out=indptr[1:])
        bags = cls(flat.dictionary.to_pylist(), indptr, words, np.ones(len(words)), encoded.indices.to_numpy())
        return bags._without_empty_words()

    @classmethod
    def from_weighted_words(cls, texts: Sequence[Iterable[tuple[str, float]]], text_of: NDArray[np.int64]) -> WordBags:
        """Make bags of weighted words.

        Parameters
        ----------
        texts : sequence of iterables of (str, float)
            Words and weights of each distinct text.
        text_of : (N,) int64
            Distinct text of each caption.
        """
        number: dict[str, int] = {}
        indptr, words, weights = [0], [], []
        for text in texts:
            for word, weight in text:
                words.append(number.setdefault(word, len(number)))
                weights.append(weight)
            indptr.append(len(words))
        return cls(list(number), np.array(indptr), np.array(words, np.int32), np.array(weights, np.float64), text_of)

    def counts(self) -> NDArray[np.int64]:
        """Return the number of times each word occurs over all captions, (V,) int64."""
        # A word counts once for every caption that shares its text.
        copies = np.bincount(self.text_of, minlength=len(self.indptr) - 1)
        each = np.repeat(copies, np.diff(self.indptr))
        return np.bincount(self.words, each, len(self.vocabulary)).astype(np.int64)

    def unit_vectors(self, vectors: NDArray[np.float64], captions: slice) -> NDArray[np.float32]:
        """Sum the word vectors of captions and scale to length 1. The mean has the same direction.

        Parameters
        ----------
        vectors : (V, D) float64
            Vector of each word of `vocabulary`, zeros for words without one.
        captions : slice
            Selects n of the N captions.

        Returns
        -------
        (n, D) float32
            Unit vectors; zeros for a caption without any known word.
        """
        # Captions with the same text share one product.
        texts, back = np.unique(self.text_of[captions], return_inverse=True)
        total: Any = self._matrix()[texts] @ vectors
        length = np.linalg.norm(total, axis=1, keepdims=True)
        unit = np.divide(total, length, out=np.zeros_like(total), where=length > 0).astype(np.float32)
        return np.asarray(unit[back])

    def _matrix(self) -> csr_array:
        """Return the weights as a sparse matrix, (U, V)."""
        from scipy.sparse import csr_array

        shape = (len(self.indptr) - 1, len(self.vocabulary))
        return csr_array((self.weights, self.words, self.indptr), shape=shape)

    def _without_empty_words(self) -> WordBags:
        """Remove the word '' that results from splitting an empty text."""
        if "" not in self.vocabulary:
            return self
        empty = self.vocabulary.index("")
        kept = self.words != empty
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        words = self.words[kept]
        return WordBags(
            [w for w in self.vocabulary if w],
            indptr,
            # Words behind the removed one move up by one.
            words - (words > empty).astype(np.int32),
            self.weights[kept],
            self.text_of,
        )
