"""Sums of trees, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
_PAIRS = 256  # whose features stay in the nearest cache while all trees pass over them


@jit
def sum_trees(roots: I4, nodes: I4, values: F8, features: F8, out: F8) -> None:
    """Add the values of all trees, in their order, to (P,) `out`; see `relabel.sources.fuse.trees.Trees`."""
    for start in range(0, len(out), _PAIRS):
        stop = min(start + _PAIRS, len(out))
        for t in range(len(roots)):
            for p in range(start, stop):
                n = roots[t]
                while nodes[n, 0] >= 0:
                    n = nodes[n, 1] if features[p, nodes[n, 0]] <= values[n] else nodes[n, 2]
                out[p] += values[n]
