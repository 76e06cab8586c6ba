"""N-grams of captions under a vocabulary that is there already: numbers by look-up, nothing numbered anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.sources.ngrams.vocabulary import Grams


@dataclass(frozen=True, eq=False)
class KnownGrams:
    """A vocabulary (see Grams), ready to be looked up in.

    Attributes
    ----------
    starts : (n + 1,) int64
        The ids of order k (from 1) are ``starts[k - 1]`` to ``starts[k] - 1``.
    words : (W,) large_string
        Words by id.
    prefix, last : (V,) int32
        Of each n-gram: the id of all but its last word (-1 for a word) and the id of its last word.
    keys : (V,) int64
        prefix * W + last: ascending within an order, since ids ascend by (order, prefix, word).
    """

    starts: NDArray[np.int64]
    words: pa.LargeStringArray
    prefix: NDArray[np.int32]
    last: NDArray[np.int32]
    keys: NDArray[np.int64]

    @classmethod
    def of(cls, table: pa.Table, n: int) -> KnownGrams:
        """Take a vocabulary as it lies on disk: columns ngram, order, prefix, last, by id; orders 1 to n."""
        order = table["order"].to_numpy()
        starts = np.searchsorted(order, np.arange(1, n + 2)).astype(np.int64)
        words = pc.cast(table["ngram"].slice(0, int(starts[1])).combine_chunks(), pa.large_string())
        prefix, last = table["prefix"].to_numpy(), table["last"].to_numpy()
        return cls(starts, words, prefix, last, prefix.astype(np.int64) * int(starts[1]) + last)

    def grams(self, texts: Sequence[str], split: Callable[[str], list[str]]) -> Grams:
        """Find the n-grams of captions.

        Parameters
        ----------
        texts : sequence of str
            None with an n-gram that the vocabulary lacks.
        split : callable
            Makes the words of one caption.
        """
        lists = [split(text) for text in texts]
        indptr = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(words) for words in lists], out=indptr[1:])
        flat = pa.array([word for words in lists for word in words], pa.large_string())
        codes = pc.index_in(flat, value_set=self.words).to_numpy().astype(np.int32)
        left = np.repeat(indptr[1:], np.diff(indptr)) - np.arange(len(codes))  # words from here to the caption's end
        at = np.full((len(self.starts) - 1, len(codes)), -1, np.int32)
        at[0] = codes
        for k in range(1, len(at)):
            here = np.flatnonzero(left > k)
            a, b = self.starts[k : k + 2]
            keys = at[k - 1, here].astype(np.int64) * len(self.words) + codes[here + k]
            at[k, here] = a + np.searchsorted(self.keys[a:b], keys)
        return Grams(indptr, at, self.starts, self.words, self.prefix, self.last)
