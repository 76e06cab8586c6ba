"""Captions as bags of known words, and how far words are from each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import jit

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
FREQUENT = 2048
"""Words whose distances to each other are kept: nine in ten words of a caption are among the first thousand or two."""


class Bags(NamedTuple):
    """N captions, T distinct words in them, V words in all.

    Attributes
    ----------
    indptr : (N + 1,) int64
    words : (T,) int32
        Caption n has the words ``words[indptr[n]:indptr[n + 1]]``, ascending and distinct.
    counts : (T,) int64
        How often each is there.
    totals : (N,) int64
        Words of each caption, repeats counted; 0 where none is known.
    """

    indptr: I8
    words: I4
    counts: I8
    totals: I8

    @classmethod
    def of(cls, indptr: I8, words: I4, counts: NDArray[np.integer]) -> Bags:
        """Make bags of their words."""
        whole = np.ascontiguousarray(counts, np.int64)
        sums = np.concatenate([[0], np.cumsum(whole)])
        words = np.ascontiguousarray(words, np.int32)
        return cls(np.ascontiguousarray(indptr, np.int64), words, whole, np.diff(sums[indptr]).astype(np.int64))

    @property
    def largest(self) -> int:
        """Distinct words of the largest bag, at least 1."""
        return int(np.diff(self.indptr).max(initial=1))

    def with_one(self, words: I4, counts: I8) -> Bags:
        """Append a caption: N + 1 bags."""
        indptr = np.append(self.indptr, self.indptr[-1] + len(words))
        return Bags.of(indptr, np.append(self.words, words), np.append(self.counts, counts))


class Ground(NamedTuple):
    """Euclidean distances between words.

    Attributes
    ----------
    vectors : (V, D) float64
        Of float32 numbers.
    place : (V,) int32
        Where a word stands in `table`; -1 where it does not.
    table : (F, F) float64
        Distances between the most frequent words, as `apart` gives them.
    """

    vectors: F8
    place: I4
    table: F8

    @classmethod
    def of(cls, vectors: NDArray[np.floating], bags: Bags, frequent: int = FREQUENT) -> Ground:
        """Keep the distances between the words that most captions hold.

        Parameters
        ----------
        vectors : (V, D) float32
        bags : Bags
        frequent : int
            Words kept; changes nothing but the time.
        """
        wide = np.ascontiguousarray(vectors, np.float64)
        often = np.argsort(-np.bincount(bags.words, minlength=len(wide)), kind="stable")[:frequent].astype(np.int32)
        place = np.full(len(wide), -1, np.int32)
        place[often] = np.arange(len(often), dtype=np.int32)
        table = np.empty((len(often), len(often)))
        _fill(wide, often, table)
        return cls(wide, place, table)

    def with_words(self, vectors: NDArray[np.floating]) -> Ground:
        """Append words."""
        place = np.append(self.place, np.full(len(vectors), -1, np.int32))
        return Ground(np.vstack([self.vectors, vectors.astype(np.float64)]), place, self.table)


@jit
def apart(vectors: F8, a: int, b: int) -> float:
    """Euclidean distance of two words: the same bits for (a, b) and (b, a), whoever asks.

    Eight running sums in a fixed order: one alone would wait for its last addition each time.
    """
    x, y = vectors[a], vectors[b]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    width = len(x)
    whole = width - width % 8
    for d in range(0, whole, 8):
        e = x[d] - y[d]
        s0 += e * e
        e = x[d + 1] - y[d + 1]
        s1 += e * e
        e = x[d + 2] - y[d + 2]
        s2 += e * e
        e = x[d + 3] - y[d + 3]
        s3 += e * e
        e = x[d + 4] - y[d + 4]
        s4 += e * e
        e = x[d + 5] - y[d + 5]
        s5 += e * e
        e = x[d + 6] - y[d + 6]
        s6 += e * e
        e = x[d + 7] - y[d + 7]
        s7 += e * e
    for d in range(whole, width):
        e = x[d] - y[d]
        s0 += e * e
    return float(np.sqrt(((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))))


@jit
def between(ground: Ground, a: int, b: int) -> float:
    """Distance of two words, from the table where it has both."""
    i, j = ground.place[a], ground.place[b]
    if i >= 0 and j >= 0:
        return float(ground.table[i, j])
    one: float = apart(ground.vectors, a, b)
    return one


@jit
def _fill(vectors: F8, words: I4, table: F8) -> None:
    for i in range(len(words)):
        table[i, i] = 0.0
        for j in range(i):
            table[i, j] = table[j, i] = apart(vectors, words[i], words[j])
