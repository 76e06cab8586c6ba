"""Relevance from unit vectors: gather, one matrix product, pool."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.references import Batch


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
        out[...] = _product(left, right)

    def _gather(self, places: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
        return self.vectors.take(places, axis=0).astype(dtype, copy=False)


def _product(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Multiply left and right.T; in a data loader's worker by torch.

    There torch keeps to one thread. numpy's OpenBLAS does not know that it is in a worker, and the threads of eight
    workers wait for each other: a thousand times the time of the product.
    """
    data = sys.modules.get("torch.utils.data")
    if data is None or data.get_worker_info() is None:
        return np.asarray(left @ right.T)
    torch = sys.modules["torch"]
    return np.asarray(torch.mm(torch.from_numpy(left), torch.from_numpy(right).T))


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two contiguous arrays are the same memory."""
    return len(a) == len(b) and a.__array_interface__["data"] == b.__array_interface__["data"]
