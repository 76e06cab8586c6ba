"""Relevance from unit vectors: gather, one matrix product, pool."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.references import Batch

_FORKED: list[bool] = []
"""Holds a value in a process that was forked after this module was loaded."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(True))


@dataclass(frozen=True, eq=False)
class VectorBlocks:
    """Cosines of stored vectors.

    Attributes
    ----------
    vectors : (N, D) float32 or float16
        Unit vectors, zero where nothing is known of a text, NaN where there is no encoding.
    """

    vectors: NDArray[Any]

    def fill(self, images: Batch, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64: products are taken in its type."""
        places = images.places
        if pooling == "paired" and _same(places[0], captions):  # gather them once; a syrk is half a gemm
            right = left = self._gather(captions, out.dtype)
        else:
            right, left = self._gather(captions, out.dtype), self._gather(places.reshape(-1), out.dtype)
        if pooling == "max" and len(places) > 1:
            scores = _product(left, right)
            np.max(scores.reshape(*places.shape, -1), axis=0, out=out)
            return
        if pooling == "mean" and len(places) > 1:  # a mean of products is a product with the mean
            left = images.mean(left.reshape(*places.shape, -1))
        _product(left, right, out)

    def _gather(self, places: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
        return self.vectors.take(places, axis=0).astype(dtype, copy=False)


def _product(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Multiply left and right.T: by torch where it is loaded, by numpy elsewhere.

    The threads of numpy's OpenBLAS go on spinning for milliseconds after a product, against those of a training's other
    work and of other processes; torch's are the training's own, and one in a data loader's worker. In any other process
    that was forked torch's threads never answer, but numpy's do.
    """
    torch, data = sys.modules.get("torch"), sys.modules.get("torch.utils.data")
    in_worker = data is not None and data.get_worker_info() is not None
    if torch is None or (_FORKED and not in_worker):
        return np.matmul(left, right.T, out=out)
    given = None if out is None else torch.from_numpy(out)
    with torch.autocast("cpu", enabled=False):
        return np.asarray(torch.mm(torch.from_numpy(left), torch.from_numpy(right).T, out=given))


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two contiguous arrays are the same memory."""
    return len(a) == len(b) and a.__array_interface__["data"] == b.__array_interface__["data"]
