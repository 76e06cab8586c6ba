"""Dot products of two lists of vectors, with the kernel that scores pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.topk.dot_kernel import dot

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]


@jit
def all_dots(vectors: F4, left: I8, right: I8, out: F8) -> None:
    """Write the dot products of M and N vectors, bit-identical to those of single pairs.

    Parameters
    ----------
    vectors : (V, D) float32, C-contiguous
    left, right : (M,) and (N,) int64
        Positions in `vectors`.
    out : (M, N) float64
    """
    # The inner loop runs over the left vectors, so the right one stays in the cache.
    for j in range(len(right)):
        for i in range(len(left)):
            out[i, j] = dot(vectors, left[i], right[j])
