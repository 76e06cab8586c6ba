"""Unit vectors as stored: widened to the type of a product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def widen(vectors: NDArray[Any], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return unit vectors in another dtype. Float16 vectors are normalised again; their lengths are off by up to 5e-4.

    Otherwise equal captions would be above or below a threshold of 1. Zero vectors stay zero.
    """
    widened = vectors.astype(dtype, copy=False)
    if vectors.dtype == np.float16:
        length = np.sqrt(np.einsum("ij,ij->i", widened, widened))
        widened /= np.maximum(length, np.finfo(widened.dtype).tiny)[:, None]
    return widened
