"""Sets of references in two layouts, and the pooling of their scores.

`References` lists the members of each set one after the other, for any number of sets of any size. `PaddedReferences`
stores the first members of all sets, then all second ones, so a block of a lookup is pooled over its first axis. This
takes a third of the time, and pooling would otherwise be a tenth of a block of vectors. Rules that do not depend on the
layout take either (see `Sets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Pooling = Literal["first", "max", "mean", "set"]
"""Reduction of the references of an image to one number."""
Integers = NDArray[np.int64]


def indptr_of(sizes: Sequence[int] | NDArray[np.integer]) -> Integers:
    """Return the row pointers of N rows, (N + 1,) int64, given the number of entries per row."""
    indptr = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return indptr


def ranges(starts: NDArray[np.integer], sizes: NDArray[np.integer]) -> Integers:
    """Concatenate ``arange(start, start + size)`` of N ranges: (sum of sizes,) int64."""
    # Each entry is its global position plus the constant offset between its range's start and the range's position.
    out = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes).astype(np.int64, copy=False)
    out += np.arange(len(out))
    return out


@dataclass(frozen=True, eq=False)
class References:
    """Sets of caption rows, usually one set per image, in CSR form.

    `indptr`: (M + 1,) int64.
    `rows`: (indptr[-1],) int32; the rows of set m are ``rows[indptr[m]:indptr[m + 1]]``.
    """

    indptr: Integers
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, sets: Iterable[Sequence[int] | NDArray[np.int32]]) -> References:
        """Build from M sequences of rows."""
        lists = [np.asarray(s, dtype=np.int32) for s in sets]
        return cls(indptr_of([len(s) for s in lists]), np.concatenate(lists) if lists else np.empty(0, np.int32))

    @classmethod
    def single(cls, rows: NDArray[np.int32]) -> References:
        """Build one set per row."""
        return cls(np.arange(len(rows) + 1, dtype=np.int64), np.asarray(rows, dtype=np.int32))

    @property
    def sizes(self) -> Integers:
        """Number of rows of each set."""
        return np.diff(self.indptr)

    @property
    def firsts(self) -> NDArray[np.int32]:
        """First row of each set. No set may be empty."""
        return self.rows[self.indptr[:-1]]

    def first(self) -> References:
        """Return the first row of each set as a separate set."""
        return References.single(self.firsts)

    def singles(self) -> References:
        """Return every row as a separate set."""
        return References.single(self.rows)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, m: int) -> NDArray[np.int32]:
        return self.rows[self.indptr[m] : self.indptr[m + 1]]

    def take(self, index: NDArray[np.integer]) -> References:
        """Select sets by an array of their numbers, in any order and with repeats."""
        index = np.asarray(index)
        sizes = np.diff(self.indptr)[index]
        return References(indptr_of(sizes), self.rows[ranges(self.indptr[:-1][index], sizes)])

    def pool(self, scores: NDArray[Any], pooling: Pooling) -> NDArray[np.float64]:
        """Reduce one score per row to one score per set (see `pool`)."""
        return pool(scores, self.indptr, pooling)


@dataclass(frozen=True, eq=False)
class PaddedReferences:
    """References of B images, position by position: all first references, then all second ones.

    `positions`: (W, B) int64; an image with fewer than W references repeats its last one.
    `counts`: (B,) int64 or None; number of references of each image; None if all have W.
    """

    positions: Integers
    counts: Integers | None = None

    @classmethod
    def of_images(
        cls, image: NDArray[np.int32], indptr: Integers, positions: Integers, most: int, paired: bool
    ) -> PaddedReferences:
        """List the references that stand for the images of some captions.

        `positions`: one caption of each image. `most`: number of first captions that are an image's references.
        `paired`: the caption itself is the only reference.
        """
        if paired:
            return cls(positions[None])
        owner = image[positions]
        first = indptr[owner]
        counts = np.minimum(indptr[owner + 1] - first, most)
        width = int(counts.max(initial=1))
        steps = np.arange(width)[:, None]
        # The usual case, five references each, needs no counts in the pooling.
        if (counts == width).all():
            return cls(first + steps)
        # A repeated reference changes no maximum; a mean leaves it out by `counts`.
        return cls(first + np.minimum(steps, counts - 1), counts)

    @property
    def sizes(self) -> Integers:
        """Number of references of each image."""
        return np.full(len(self), len(self.positions)) if self.counts is None else self.counts

    @property
    def firsts(self) -> Integers:
        """First reference of each image."""
        firsts: Integers = self.positions[0]
        return firsts

    def first(self) -> PaddedReferences:
        """Return the first reference of each image, as its only one."""
        return PaddedReferences(self.positions[:1])

    def singles(self) -> PaddedReferences:
        """Return every reference as the only one of an image."""
        return PaddedReferences(self.positions.reshape(1, -1))

    def __len__(self) -> int:
        return int(self.positions.shape[1])

    def take(self, index: Integers) -> PaddedReferences:
        """Select images, repeats allowed."""
        return PaddedReferences(self.positions[:, index], None if self.counts is None else self.counts[index])

    def pool(self, scores: NDArray[Any], pooling: Pooling) -> NDArray[Any]:
        """Reduce (W * B, ...) scores of references to (B, ...), in their type."""
        scores = scores.reshape(*self.positions.shape, *scores.shape[1:])
        if len(scores) == 1:
            return np.asarray(scores[0])
        if pooling == "max":
            return np.asarray(scores.max(axis=0))
        if self.counts is None:
            return np.asarray(scores.sum(axis=0) / scores.dtype.type(len(scores)))
        # Trailing axes of length 1 let the counts apply to scores of any number of axes.
        counts = self.counts.reshape(-1, *([1] * (scores.ndim - 2)))
        steps = np.arange(len(scores)).reshape(-1, *([1] * (scores.ndim - 1)))
        return np.asarray(np.where(steps < counts, scores, 0).sum(axis=0) / counts.astype(scores.dtype))


Sets = TypeVar("Sets", References, PaddedReferences)
"""Sets of references in either layout."""


def pool(values: NDArray[np.floating[Any]], indptr: Integers, pooling: Pooling) -> NDArray[np.float64]:
    """Reduce (indptr[-1], ...) scores of references to (P, ...) float64 scores of sets.

    `indptr`: (P + 1,) int64; set p owns ``values[indptr[p]:indptr[p + 1]]``; no set is empty. `pooling`: `first` takes
    the first reference; `max` and `mean` take all.
    """
    starts = indptr[:-1]
    sizes = indptr[1:] - starts
    if pooling == "first":
        return np.asarray(values[starts], np.float64)
    # Sets of one size form a regular array: `reduceat` along rows is 20 times slower than a plain reduction.
    if values.ndim > 1 and len(sizes) and (sizes == sizes[0]).all():
        sets = values.reshape(len(sizes), int(sizes[0]), *values.shape[1:])
        return np.asarray(sets.max(axis=1) if pooling == "max" else sets.mean(axis=1, dtype=np.float64), np.float64)
    if pooling == "max":
        return np.asarray(np.maximum.reduceat(values, starts, axis=0), np.float64)
    # Sums are in float64 even for float32 scores, so the mean does not depend on the size of a set.
    total: NDArray[np.float64] = np.add.reduceat(values, starts, axis=0, dtype=np.float64)
    return total / sizes.reshape(-1, *([1] * (values.ndim - 1)))
