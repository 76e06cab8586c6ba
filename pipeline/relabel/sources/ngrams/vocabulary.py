"""The n-grams of a corpus, numbered without a Python loop over them.

An n-gram is its first n-1 words (an n-gram already numbered) and one more word, so the n-grams of order n are the
distinct (prefix, word) pairs. Ids ascend by (order, prefix, word); words ascend by their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.corpus import References

_CHUNK = 50_000  # captions (or documents) held in pieces of this many


@dataclass(frozen=True, eq=False)
class Grams:
    """Every n-gram occurrence of a list of captions, and the vocabulary they come from.

    Attributes
    ----------
    indptr : (N + 1,) int64
        The words of caption i are at ``indptr[i]:indptr[i + 1]``.
    at : (n, T) int32
        Id of the n-gram of each order that starts at each word; -1 where the caption ends before it does.
    starts : (n + 1,) int64
        The ids of order k (from 1) are ``starts[k - 1]`` to ``starts[k] - 1``.
    words : (W,) large_string
        Words by id.
    prefix, last : (V,) int32
        Of each n-gram: the id of all but its last word (-1 for a word) and the id of its last word.
    """

    indptr: NDArray[np.int64]
    at: NDArray[np.int32]
    starts: NDArray[np.int64]
    words: pa.LargeStringArray
    prefix: NDArray[np.int32]
    last: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.prefix)

    def counts(self, first: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Count the n-grams of captions `first` to `stop` - 1.

        Returns
        -------
        indptr : (stop - first + 1,) int64
        ids : (indptr[-1],) int32
            Ascending within a caption.
        counts : (indptr[-1],) int32
        """
        bounds = self.indptr[first : stop + 1]
        owner = np.repeat(np.arange(stop - first), np.diff(bounds))
        keys = _keys(owner, self.at[:, bounds[0] : bounds[-1]], len(self))
        unique, counts = _distinct(keys)
        row, ids = np.divmod(unique, max(1, len(self)))
        indptr = np.searchsorted(row, np.arange(stop - first + 1))
        return indptr.astype(np.int64), ids.astype(np.int32), counts.astype(np.int32)

    def document_frequency(self, documents: References) -> NDArray[np.int32]:
        """Count the documents that hold each n-gram.

        Parameters
        ----------
        documents : References
            Sets of captions (numbers from 0, as given to `grams_of`).

        Returns
        -------
        (V,) int32
        """
        df = np.zeros(len(self), np.int64)
        for a in range(0, len(documents), _CHUNK):
            some = documents.take(np.arange(a, min(a + _CHUNK, len(documents))))
            first, sizes = self.indptr[some.rows], np.diff(self.indptr)[some.rows]
            place = np.arange(sizes.sum()) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
            document = np.repeat(np.arange(len(some)), np.diff(some.indptr))
            keys = _keys(np.repeat(document, sizes), self.at[:, place], len(self))
            df += np.bincount(_distinct(keys)[0] % max(1, len(self)), minlength=len(self))
        return df.astype(np.int32)

    def texts(self) -> pa.ChunkedArray:
        """Spell every n-gram, words joined by one space, by id."""
        space, chunks = pa.scalar(" ", pa.large_string()), [self.words]
        for a, b, before in zip(self.starts[1:-1], self.starts[2:], self.starts[:-2], strict=True):
            prefix = chunks[-1].take(pa.array(self.prefix[a:b] - before))
            last = self.words.take(pa.array(self.last[a:b]))
            chunks.append(pc.binary_join_element_wise(prefix, last, space))
        return pa.chunked_array(chunks, pa.large_string())


def grams_of(texts: Sequence[str], split: Callable[[str], list[str]], n: int) -> Grams:
    """Number the n-grams of captions.

    Parameters
    ----------
    texts : sequence of str
    split : callable
        Makes the words of one caption.
    n : int
        Longest order, at least 1.
    """
    codes, indptr, words = _codes(texts, split)
    width = len(words)
    left = np.repeat(indptr[1:], np.diff(indptr)) - np.arange(len(codes))  # words from here to the caption's end
    at = np.full((n, len(codes)), -1, np.int32)
    at[0] = codes
    starts, prefix, last = [0, width], [np.full(width, -1, np.int32)], [np.arange(width, dtype=np.int32)]
    for k in range(1, n):
        here = np.flatnonzero(left > k)
        keys = at[k - 1, here].astype(np.int64) * width + codes[here + k]
        unique, inverse = np.unique(keys, return_inverse=True)
        at[k, here] = inverse + starts[-1]
        starts.append(starts[-1] + len(unique))
        prefix.append((unique // max(1, width)).astype(np.int32))
        last.append((unique % max(1, width)).astype(np.int32))
    return Grams(indptr, at, np.array(starts), words, np.concatenate(prefix), np.concatenate(last))


def _codes(
    texts: Sequence[str], split: Callable[[str], list[str]]
) -> tuple[NDArray[np.int32], NDArray[np.int64], pa.LargeStringArray]:
    """Words of all captions as codes into the sorted list of words."""
    chunks, sizes = [], np.zeros(len(texts) + 1, np.int64)
    for a in range(0, len(texts), _CHUNK):
        lists = [split(text) for text in texts[a : a + _CHUNK]]
        sizes[a + 1 : a + 1 + len(lists)] = [len(words) for words in lists]
        chunks.append(pa.array([word for words in lists for word in words], pa.large_string()))
    encoded = pa.chunked_array(chunks, pa.large_string()).dictionary_encode().combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    return codes, np.cumsum(sizes), encoded.dictionary.take(pa.array(order))


def _keys(owner: NDArray[np.integer], at: NDArray[np.int32], width: int) -> NDArray[np.int64]:
    """One number an occurrence: owner * V + id."""
    keys = (owner.astype(np.int64) * width)[None] + at
    return keys[at >= 0]


def _distinct(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort `keys` in place; return the distinct ones and how often each occurs (np.unique hashes, which is slower)."""
    keys.sort()
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.diff(first, append=len(keys))
