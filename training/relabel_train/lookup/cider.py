"""Relevance from sparse weights of n-grams (cider): a sparse product, a length penalty per pair, then pooling.

The relevance of a candidate c to one reference r is ``gauss[|len_r - len_c|]`` times the sum, over their common
columns, of r's weight as a reference times c's weight as a candidate. For CIDEr-D a column is an (n-gram, level):
min(a, b) of two counts is the number of levels t with a >= t and b >= t. Columns that only captions of one image have
are not stored; the cells of an image and its captions come from a table.

A batch of 128 images and 128 captions has about 20,000 entries of 640 references and 4,000 of the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.blocks import ColumnNumbers
from relabel_train.scoring.references import PaddedReferences, Pooling, ranges

_ONE_THREAD = 1 << 18
"""Largest m n k that OpenBLAS multiplies on one thread (interface/gemm.c)."""


class Entries(NamedTuple):
    """Entries of some captions: caption (by its number among them), column, and offset into the lookup's arrays."""

    caption: NDArray[np.int64]
    column: NDArray[Any]
    offset: NDArray[np.int64]

    def take(self, chosen: NDArray[np.int64]) -> Entries:
        """Select entries."""
        return Entries(self.caption.take(chosen), self.column.take(chosen), self.offset.take(chosen))


@dataclass(frozen=True, eq=False)
class CiderBlocks:
    """Sparse weights of captions.

    `image`, `first`: (N,) int32, (M + 1,) int64; `image` and `indptr` of `lookup.format`.
    `indptr`: (N + 1,) int64.
    `columns`: (indptr[-1],) int32; ascending within a caption; the most frequent columns have the lowest numbers.
    `reference`, `candidate`: (indptr[-1],) float64; weights of a caption as a reference and as a candidate.
    `length`: (N,) int32.
    `gauss`: (longest + 1,) float64; factor for each difference in length.
    `sibling_start`: (M,) int64.
    `sibling_scores`: an image's n captions against each other: candidate c and reference r, counted from 0 within the
        image, at ``sibling_start[m] + c * n + r``.
    `frequent`: number of columns that are multiplied densely.
    """

    image: NDArray[np.int32]
    first: NDArray[np.int64]
    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    reference: NDArray[np.float64]
    candidate: NDArray[np.float64]
    length: NDArray[np.int32]
    gauss: NDArray[np.float64]
    sibling_start: NDArray[np.int64]
    sibling_scores: NDArray[np.float64]
    frequent: int
    numbers: ColumnNumbers

    @classmethod
    def open(cls, arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int]) -> CiderBlocks:
        """Wrap the arrays of a lookup."""
        names = ("indptr", "columns", "reference", "candidate", "length", "gauss")
        return cls(
            **{name: arrays[f"features.{name}"] for name in names},
            image=arrays["image"],
            first=arrays["indptr"],
            sibling_start=arrays["siblings.start"],
            sibling_scores=arrays["siblings.scores"],
            frequent=sizes["frequent"],
            numbers=ColumnNumbers(sizes["columns"], sizes["frequent"]),
        )

    def fill(self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64; sums are computed in float64."""
        references = images.positions.reshape(-1)
        scores = self._products(references, captions)
        self._apply_length_penalty(scores, references, captions)
        out[...] = images.pool(scores, pooling)
        self._put_siblings(images, captions, pooling, out)

    def _products(self, references: NDArray[np.int64], captions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Multiply R references and C candidates: (R, C)."""
        theirs = self._entries(captions)
        # Frequent columns have the lowest numbers.
        split = theirs.column < self.frequent
        often, seldom = theirs.take(np.flatnonzero(split)), theirs.take(np.flatnonzero(~split))
        ours = self._entries(references)
        # Rare columns of the candidates get small numbers. Entries of references in other columns add nothing.
        with self.numbers.numbered(seldom.column) as numbers:
            number = numbers.take(ours.column)
            seldom = seldom._replace(column=numbers.take(seldom.column) - numbers.dtype.type(self.frequent))
        shared = np.flatnonzero(number >= 0)
        ours = Entries(ours.caption.take(shared), number.take(shared), ours.offset.take(shared))
        # Few columns are frequent, so they make a small dense product. About 15,000 pairs of other entries remain.
        dense = ours.column < self.frequent
        scores = self._dense(ours.take(np.flatnonzero(dense)), len(references), often, len(captions))
        self._add_sparse(ours.take(np.flatnonzero(~dense)), seldom, scores)
        return scores

    def _dense(self, ours: Entries, rows: int, theirs: Entries, columns: int) -> NDArray[np.float64]:
        """Multiply the frequent columns of references and candidates: (rows, columns)."""
        left, right = np.zeros((rows, self.frequent)), np.zeros((self.frequent, columns))
        left[ours.caption, ours.column] = self.reference.take(ours.offset)
        right[theirs.column, theirs.caption] = self.candidate.take(theirs.offset)
        out = np.empty((rows, columns))
        # Pieces stay below the size at which OpenBLAS starts threads: in a data loader's worker, threads cost more than
        # they save.
        step = max(1, _ONE_THREAD // max(1, self.frequent * columns))
        for a in range(0, rows, step):
            np.matmul(left[a : a + step], right, out=out[a : a + step])
        return out

    def _add_sparse(self, ours: Entries, theirs: Entries, scores: NDArray[np.float64]) -> None:
        """Add the pairs of entries of one column; columns are numbered below ``len(theirs.column)``."""
        # Postings of the candidates: entries by column, those of column c from begin[c].
        size = np.bincount(theirs.column, minlength=len(theirs.column))
        begin = np.cumsum(size) - size
        by_column = np.argsort(theirs.column, kind="stable")
        number = ours.column - ours.column.dtype.type(self.frequent)
        # Each entry of a reference meets all entries of its column.
        pairs = size.take(number)
        partner = by_column.take(ranges(begin.take(number), pairs))
        weight = np.repeat(self.reference.take(ours.offset), pairs)
        weight *= self.candidate.take(theirs.offset).take(partner)
        cell = np.repeat(ours.caption * scores.shape[1], pairs)
        cell += theirs.caption.take(partner)
        # Unbuffered, since several pairs meet in one cell.
        np.add.at(scores.reshape(-1), cell, weight)

    def _apply_length_penalty(
        self, scores: NDArray[np.float64], references: NDArray[np.int64], captions: NDArray[np.int64]
    ) -> None:
        """Multiply by the length penalty: a table over the lengths of references, then one row per reference."""
        ours, theirs = self.length[references], self.length[captions]
        # Captions have few distinct lengths: one row per length instead of one per reference.
        lengths = np.arange(int(ours.max(initial=0)) + 1)
        scores *= self.gauss[np.abs(lengths[:, None] - theirs)].take(ours, axis=0)

    def _put_siblings(
        self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]
    ) -> None:
        """Overwrite the cells of an image and its own captions: their common columns are not stored."""
        image = self.image[captions]
        i, j = np.nonzero(self.image[images.firsts][:, None] == image)
        owner = image[j]
        first = self.first[owner]
        start = self.sibling_start[owner] + (captions[j] - first) * (self.first[owner + 1] - first)
        references = images.take(i)
        scores = self.sibling_scores[start + references.positions - first]
        out[i, j] = references.pool(scores.reshape(-1), pooling)

    def _entries(self, captions: NDArray[np.int64]) -> Entries:
        """Gather the entries of some captions, caption by caption."""
        first = self.indptr[captions]
        sizes = self.indptr[captions + 1] - first
        offset = ranges(first, sizes)
        return Entries(np.repeat(np.arange(len(captions)), sizes), self.columns.take(offset), offset)
