"""Parts that all kinds of lookup share: references of a batch, sparse indexing, and the baseline `same_image`.

*Positions* are rows counted from the first row covered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.format import Pooling


@dataclass(frozen=True, eq=False)
class References:
    """References of B images, position by position: all first references, then all second ones.

    `positions`: (W, B) int64; an image with fewer than W references repeats its last one.
    `sizes`: (B,) int64 or None; number of references of each image; None if all have W.
    """

    positions: NDArray[np.int64]
    sizes: NDArray[np.int64] | None

    @classmethod
    def of(
        cls, image: NDArray[np.int32], indptr: NDArray[np.int64], positions: NDArray[np.int64], most: int, paired: bool
    ) -> References:
        """List the references that stand for the images of some captions.

        `positions`: one caption of each image. `most`: number of first captions that are an image's references.
        `paired`: the caption itself is the only reference.
        """
        if paired:
            return cls(positions[None], None)
        owner = image[positions]
        first = indptr[owner]
        sizes = np.minimum(indptr[owner + 1] - first, most)
        width = int(sizes.max(initial=1))
        steps = np.arange(width)[:, None]
        # The usual case, five references each, needs no counts in the pooling.
        if (sizes == width).all():
            return cls(first + steps, None)
        # A repeated reference changes no maximum; a mean leaves it out by `sizes`.
        return cls(first + np.minimum(steps, sizes - 1), sizes)

    def take(self, index: NDArray[np.int64]) -> References:
        """Select images, repeats allowed."""
        return References(self.positions[:, index], None if self.sizes is None else self.sizes[index])

    def pool(self, scores: NDArray[Any], pooling: Pooling) -> NDArray[Any]:
        """Reduce (W, B, C) scores of references to (B, C); may overwrite `scores`."""
        if len(scores) == 1:
            return np.asarray(scores[0])
        if pooling == "max":
            return np.asarray(scores.max(axis=0))
        return self.mean(scores)

    def mean(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Average (W, B, C) scores of references to (B, C); may overwrite `scores`."""
        if self.sizes is None:
            return np.asarray(scores.sum(axis=0) / scores.dtype.type(len(scores)))
        scores[np.arange(len(scores))[:, None] >= self.sizes] = 0
        return np.asarray(scores.sum(axis=0) / self.sizes[:, None].astype(scores.dtype))


class Blocks(Protocol):
    """Exact relevance of one kind of lookup."""

    def fill(self, images: References, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Write the relevance of images and captions into `out`, (B_images, B_captions) float32 or float64."""


@dataclass(frozen=True, eq=False)
class SameImageBlocks:
    """Baseline: 1 for a caption of the image itself, 0 for any other; `image` is (N,) int32."""

    image: NDArray[np.int32]

    def fill(self, images: References, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Write 0 and 1 into `out`, (B_images, B_captions)."""
        np.equal(self.image[images.positions[0]][:, None], self.image[captions], out=out, casting="unsafe")


class ColumnNumbers:
    """Small numbers for the columns of a batch, in time that depends on the batch alone.

    Holds one array over all C columns per thread. Between calls it is -1 except in the first `kept` columns, which keep
    their number.
    """

    def __init__(self, columns: int, kept: int) -> None:
        self.columns, self.kept = columns, kept
        self._buffers = threading.local()

    @contextmanager
    def numbered(self, columns: NDArray[np.int32]) -> Iterator[NDArray[Any]]:
        """Yield an array that maps each of some columns (repeats allowed, none kept) to a distinct number.

        Numbers are ``kept`` to ``kept + len(columns) - 1``, not all of them used.
        """
        stop = self.kept + len(columns)
        # int16 halves the cache that a batch of usual size needs.
        numbers = self._buffer("int16" if stop <= 1 << 15 else "int32")
        try:
            numbers[columns] = np.arange(self.kept, stop, dtype=numbers.dtype)
            yield numbers
        finally:
            # Only the cells that were written are reset: a fill of all C columns would dominate a block.
            numbers[columns] = -1

    def _buffer(self, dtype: str) -> NDArray[Any]:
        """Return this thread's array of a dtype, made on first use."""
        buffer: NDArray[Any] | None = getattr(self._buffers, dtype, None)
        if buffer is None:
            buffer = np.full(self.columns, -1, dtype)
            buffer[: self.kept] = np.arange(self.kept)
            setattr(self._buffers, dtype, buffer)
        return buffer


def ranges(first: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate the ranges ``first[i]`` to ``first[i] + sizes[i] - 1``."""
    # Each entry is its index in the output plus a shift that is constant within its range.
    out = np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    out += np.arange(len(out))
    return out
