"""The two loops of a fuse that are compiled: sums of trees, and all cosines by the kernel that scores pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.neighbours.dots import dot
from relabel.sources.ngrams.kernels import jit

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
_PAIRS = 256  # whose features stay in the nearest cache while all trees pass over them


@jit
def sum_trees(roots: I4, nodes: I4, values: F8, features: F8, out: F8) -> None:
    """Add the values of all trees, in their order, to (P,) `out`; see `relabel.sources.fuse_trees.Trees`."""
    for start in range(0, len(out), _PAIRS):
        stop = min(start + _PAIRS, len(out))
        for t in range(len(roots)):
            for p in range(start, stop):
                n = roots[t]
                while nodes[n, 0] >= 0:
                    n = nodes[n, 1] if features[p, nodes[n, 0]] <= values[n] else nodes[n, 2]
                out[p] += values[n]


@jit
def all_dots(vectors: F4, left: I8, right: I8, out: F8) -> None:
    """Write the dot products of M and N vectors.

    Parameters
    ----------
    vectors : (V, D) float32, C-contiguous
    left, right : (M,) and (N,) int64
        Places in `vectors`.
    out : (M, N) float64
    """
    for j in range(len(right)):
        for i in range(len(left)):
            out[i, j] = dot(vectors, left[i], right[j])
