"""Sums of regression trees, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
_PAIRS = 256  # pairs per block, whose features stay in the first-level cache while all trees are evaluated


@jit
def sum_trees(roots: I4, nodes: I4, values: F8, features: F8, out: F8) -> None:
    """Add the values of all trees (see `relabel.sources.fuse.model.Trees`) to `out`, (P,)."""
    # Blocks of pairs are the outer loop, but each pair adds its trees in their order. So the bits do not depend on the
    # size of a block.
    for start in range(0, len(out), _PAIRS):
        stop = min(start + _PAIRS, len(out))
        for t in range(len(roots)):
            for p in range(start, stop):
                n = roots[t]
                # Children follow their parent, so the walk ends at a leaf. Equality goes left, as in scikit-learn.
                while nodes[n, 0] >= 0:
                    n = nodes[n, 1] if features[p, nodes[n, 0]] <= values[n] else nodes[n, 2]
                out[p] += values[n]
