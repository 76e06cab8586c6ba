"""Parts that all kinds of lookup share: the contract of blocks, sparse indexing, and the baseline `same_image`.

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

from relabel_train.scoring.references import PaddedReferences, Pooling
from relabel_train.scoring.same_image import same_image


class Blocks(Protocol):
    """Exact relevance of one kind of lookup."""

    def fill(self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Write the relevance of images and captions into `out`, (B_images, B_captions) float32 or float64."""


@dataclass(frozen=True, eq=False)
class SameImageBlocks:
    """Baseline: 1 for a caption of the image itself, 0 for any other; `image` is (N,) int32."""

    image: NDArray[np.int32]

    def fill(self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Write 0 and 1 into `out`, (B_images, B_captions)."""
        out[...] = same_image(self.image[images.firsts], self.image[captions])


class ColumnNumbers:
    """Small numbers for the columns of a batch, in time that depends only on the batch.

    Holds one array over all C columns per thread. Between calls it is -1 except in the first `kept` columns: these keep
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
