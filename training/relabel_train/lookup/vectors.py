"""Relevance from unit vectors: gather, one matrix product, pool."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.scoring.references import PaddedReferences, Pooling
from relabel_train.scoring.vectors import widen

_FORKED: list[bool] = []
"""Holds a value in a process that was forked after this module was loaded."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(True))


@dataclass(frozen=True, eq=False)
class VectorBlocks:
    """Cosines of stored vectors.

    `vectors`: (N, D) float32 or float16; unit vectors; zero for a text without known words, NaN for a caption without
        an encoding.
    `image_vectors`: (M, D) float32 or float16; unit vectors of images. The pooling "set" compares them with those of
        the captions.
    `image`: (N,) int32; image number of each caption; given with `image_vectors`.
    """

    vectors: NDArray[Any]
    image_vectors: NDArray[Any] | None = None
    image: NDArray[np.int32] | None = None

    def fill(self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64; products are computed in its type."""
        positions = images.positions
        if pooling == "set" and self.image_vectors is not None and self.image is not None:
            left = _gather(self.image_vectors, self.image[positions[0]], out.dtype)
            _product(left, _gather(self.vectors, captions, out.dtype), out)
            return
        if pooling == "first" and _same_memory(positions[0], captions):
            # One gather, and a product with itself: a symmetric product (syrk) is half of a general one (gemm).
            right = left = _gather(self.vectors, captions, out.dtype)
        else:
            right = _gather(self.vectors, captions, out.dtype)
            left = _gather(self.vectors, positions.reshape(-1), out.dtype)
        if pooling == "max" and len(positions) > 1:
            scores = _product(left, right)
            np.max(scores.reshape(*positions.shape, -1), axis=0, out=out)
            return
        if pooling == "mean" and len(positions) > 1:
            # A mean of products is a product with the mean: a W-th of the work.
            left = images.pool(left, "mean")
        _product(left, right, out)


def _gather(vectors: NDArray[Any], positions: NDArray[np.integer], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read vectors in the type of the result; float16 is widened once per batch."""
    return widen(vectors.take(positions, axis=0), dtype)


def _product(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Multiply left and right.T, with torch if it is loaded, otherwise with numpy.

    The threads of numpy's OpenBLAS spin for milliseconds after a product and compete with the training process and with
    other workers. torch's threads are those of the training process itself, one in a data loader's worker. In any other
    forked process torch's threads never answer, so numpy multiplies there.
    """
    torch, data = sys.modules.get("torch"), sys.modules.get("torch.utils.data")
    in_worker = data is not None and data.get_worker_info() is not None
    if torch is None or (_FORKED and not in_worker):
        return np.matmul(left, right.T, out=out)
    target = None if out is None else torch.from_numpy(out)
    # Autocast of the training loop would multiply labels in bfloat16.
    with torch.autocast("cpu", enabled=False):
        return np.asarray(torch.mm(torch.from_numpy(left), torch.from_numpy(right).T, out=target))


def _same_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two contiguous arrays are the same memory."""
    return len(a) == len(b) and a.__array_interface__["data"] == b.__array_interface__["data"]
