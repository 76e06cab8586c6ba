"""Numbering of the n-grams of captions, without a Python loop over n-grams.

An n-gram of order n consists of its prefix, an n-gram of order n - 1 that already has an id, and its last word. The
n-grams of an order are thus the distinct (prefix, word) pairs. Ids are sorted by (order, prefix, word), and words by
their UTF-8 bytes. The ids of a subset of a corpus therefore have the same order as those of the complete corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.numeric.csr import owners, ranges
from relabel.corpus import References
from relabel.store.manifest import combine_chunks

_CHUNK = 50_000  # captions or documents per chunk, to limit the memory for Python strings and keys


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Distinct n-grams by id.

    `starts`: (n + 1,) int64; the ids of order k (from 1) are ``starts[k - 1]`` to ``starts[k] - 1``.
    `words`: (W,) large_string; words by id.
    `prefix`, `last`: (V,) int32; for each n-gram, the id of its prefix (-1 for a word), and the id of its last word.
    """

    starts: NDArray[np.int64]
    words: pa.LargeStringArray
    prefix: NDArray[np.int32]
    last: NDArray[np.int32]

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read a Parquet file that was written from `table`."""
        words = pq.read_table(path, columns=["ngram"], filters=[("order", "=", 1)])["ngram"].combine_chunks()
        table = pq.read_table(path, columns=["order", "prefix", "last"])
        order = table["order"].to_numpy()
        starts = np.searchsorted(order, np.arange(1, int(order.max(initial=0)) + 2)).astype(np.int64)
        return cls(starts, pc.cast(words, pa.large_string()), table["prefix"].to_numpy(), table["last"].to_numpy())

    def __len__(self) -> int:
        return len(self.prefix)

    def table(self, df: NDArray[np.int32]) -> pa.Table:
        """Return the n-grams as a table: id, text, order 1..n, document frequency, and ids of prefix and last word."""
        columns = {
            "id": np.arange(len(self), dtype=np.int32),
            "ngram": self.texts(),
            "order": (owners(self.starts) + 1).astype(np.int8),
        }
        return pa.table(columns | {"df": df, "prefix": self.prefix, "last": self.last})

    def texts(self) -> pa.ChunkedArray:
        """Return the text of every n-gram, with single spaces between words."""
        space, chunks = pa.scalar(" ", pa.large_string()), [self.words]
        for a, b, before in zip(self.starts[1:-1], self.starts[2:], self.starts[:-2], strict=True):
            prefix = chunks[-1].take(pa.array(self.prefix[a:b] - before))
            last = self.words.take(pa.array(self.last[a:b]))
            chunks.append(pc.binary_join_element_wise(prefix, last, space))
        return pa.chunked_array(chunks, pa.large_string())

    def find(self, other: Vocabulary) -> NDArray[np.int32]:
        """Return the ids in this vocabulary of the U n-grams of `other`, (U,); -1 for those that are missing."""
        ids = np.full(len(other), -1, np.int32)
        words = pc.fill_null(pc.index_in(other.words, value_set=self.words), -1)
        ids[: len(other.words)] = words.to_numpy()
        for k in range(1, min(len(self.starts), len(other.starts)) - 1):
            (a, b), (first, stop) = other.starts[k : k + 2], self.starts[k : k + 2]
            if first == stop:
                break
            # N-grams of order k + 1 are sorted by this key. The ids of their prefixes are known from the last step.
            prefix, last = ids[other.prefix[a:b]], ids[other.last[a:b]]
            key = prefix.astype(np.int64) * len(self.words) + last
            at = np.minimum(first + np.searchsorted(self._keys[first:stop], key), stop - 1)
            ids[a:b] = np.where((prefix >= 0) & (last >= 0) & (self._keys[at] == key), at, -1)
        return ids

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self.prefix.astype(np.int64) * len(self.words) + self.last


@dataclass(frozen=True, eq=False)
class NgramOccurrences:
    """All occurrences of n-grams in a list of captions.

    `indptr`: (N + 1,) int64; the words of caption i are at ``indptr[i]:indptr[i + 1]``.
    `ids`: (n, T) int32; id of the n-gram of each order that starts at each word, or -1 if the caption is too short.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    vocabulary: Vocabulary

    def counts(self, first: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Count the n-grams of captions `first` to `stop` - 1.

        Returns `indptr`, (stop - first + 1,) int64; `ids`, (indptr[-1],) int32, ascending in each caption; `counts`,
        (indptr[-1],) int32.
        """
        bounds, size = self.indptr[first : stop + 1], len(self.vocabulary)
        unique, counts = _distinct(_keys(owners(bounds), self.ids[:, bounds[0] : bounds[-1]], size))
        row, ids = np.divmod(unique, max(1, size))
        indptr = np.searchsorted(row, np.arange(stop - first + 1))
        return indptr.astype(np.int64), ids.astype(np.int32), counts.astype(np.int32)

    def document_frequency(self, documents: References) -> NDArray[np.int32]:
        """Count the documents, given as sets of positions, that contain each n-gram: (V,) int32."""
        size = len(self.vocabulary)
        df = np.zeros(size, np.int64)
        for a in range(0, len(documents), _CHUNK):
            chunk = documents.take(np.arange(a, min(a + _CHUNK, len(documents))))
            sizes = np.diff(self.indptr)[chunk.rows]
            occurrences = self.ids[:, ranges(self.indptr[chunk.rows], sizes)]
            keys = _keys(np.repeat(owners(chunk.indptr), sizes), occurrences, size)
            # Several occurrences of an n-gram in a document are one distinct (document, id) key.
            df += np.bincount(_distinct(keys)[0] % max(1, size), minlength=size)
        return df.astype(np.int32)


def number_ngrams(texts: Sequence[str], split: Callable[[str], list[str]], n: int) -> NgramOccurrences:
    """Number the n-grams of captions up to order `n`."""
    codes, indptr, words = _codes(texts, split)
    width = len(words)
    left = np.repeat(indptr[1:], np.diff(indptr)) - np.arange(
        len(codes)
    )  # words from each position to its caption's end
    ids = np.full((n, len(codes)), -1, np.int32)
    ids[0] = codes
    starts, prefix, last = [0, width], [np.full(width, -1, np.int32)], [np.arange(width, dtype=np.int32)]
    for k in range(1, n):
        begin = np.flatnonzero(left > k)  # positions at which an n-gram of k + 1 words starts
        keys = ids[k - 1, begin].astype(np.int64) * width + codes[begin + k]
        unique, inverse = np.unique(keys, return_inverse=True)
        ids[k, begin] = inverse + starts[-1]
        starts.append(starts[-1] + len(unique))
        prefix.append((unique // max(1, width)).astype(np.int32))
        last.append((unique % max(1, width)).astype(np.int32))
    vocabulary = Vocabulary(np.array(starts), words, np.concatenate(prefix), np.concatenate(last))
    return NgramOccurrences(indptr, ids, vocabulary)


def _codes(
    texts: Sequence[str], split: Callable[[str], list[str]]
) -> tuple[NDArray[np.int32], NDArray[np.int64], pa.LargeStringArray]:
    """Return the code of every word, the row pointers of the captions, and the sorted distinct words."""
    chunks, sizes = [], np.zeros(len(texts) + 1, np.int64)
    for a in range(0, len(texts), _CHUNK):
        lists = [split(text) for text in texts[a : a + _CHUNK]]
        sizes[a + 1 : a + 1 + len(lists)] = [len(words) for words in lists]
        chunks.append(pa.array([word for words in lists for word in words], pa.large_string()))
    # Arrow numbers words by first occurrence. Ids must not depend on it, so codes are mapped to sorted ranks.
    encoded = combine_chunks(pa.chunked_array(chunks, pa.large_string()).dictionary_encode())
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    return codes, np.cumsum(sizes), encoded.dictionary.take(pa.array(order))


def _keys(owner: NDArray[np.integer], ids: NDArray[np.int32], width: int) -> NDArray[np.int64]:
    """Return a key per occurrence, owner * V + id."""
    keys = (owner.astype(np.int64) * width)[None] + ids
    return keys[ids >= 0]


def _distinct(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort `keys` in place, and return the distinct keys with their numbers of occurrences."""
    keys.sort()  # faster than np.unique, which uses hashing
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.diff(first, append=len(keys))
