"""Sums of small trees over many pairs in numpy: every tree at once, by the leaves that each feature rules out.

After Lucchese et al., "QuickScorer", SIGIR 2015: a node that a pair does not pass to the left rules out the leaves of
its left subtree; what is left of a tree's leaves after all nodes begins with the pair's leaf. With at most 8 leaves
that is a byte a tree. Where a feature's value lies among its thresholds is looked up once, and gives the bytes of all
trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAVES = 8
"""Most leaves of a tree."""

U1 = NDArray[np.uint8]
F8 = NDArray[np.float64]
_PAIRS = 1 << 14  # pairs whose bytes are held at once: 2.5 MB with 150 trees


@dataclass(frozen=True, eq=False)
class SmallTrees:
    """T trees over F features.

    Attributes
    ----------
    thresholds : list of F arrays
        Ascending; a value that is not larger than a threshold goes left.
    masks : list of F arrays, (thresholds + 1, T) uint8
        The leaves that a value leaves over, by how many thresholds it is larger than.
    values : (T, 256) float64
        Value of the first leaf in a byte.
    """

    thresholds: list[F8]
    masks: list[U1]
    values: F8

    @classmethod
    def of(cls, roots: NDArray[Any], nodes: NDArray[Any], values: NDArray[Any], features: int) -> SmallTrees:
        """Make the tables of trees as the lookup holds them (see format.HEADS)."""
        found: list[list[tuple[float, int, int]]] = [[] for _ in range(features)]  # threshold, tree, leaves ruled out
        table = np.zeros((len(roots), 256))
        for tree, root in enumerate(roots.tolist()):
            leaves: list[float] = []

            def walk(n: int, leaves: list[float] = leaves, tree: int = tree) -> None:
                feature, left, right = nodes[n].tolist()
                if feature < 0:
                    leaves.append(float(values[n]))
                    return
                first = len(leaves)
                walk(left)
                found[feature].append((float(values[n]), tree, sum(1 << i for i in range(first, len(leaves)))))
                walk(right)

            walk(root)
            if len(leaves) > LEAVES:
                raise ValueError(f"a tree has {len(leaves)} leaves; {LEAVES} are read")
            for byte in range(1, 256):
                first = (byte & -byte).bit_length() - 1
                table[tree, byte] = leaves[first] if first < len(leaves) else 0.0
        thresholds = [np.unique([t for t, _, _ in one]) for one in found]
        masks = [np.full((len(t) + 1, len(roots)), 255, np.uint8) for t in thresholds]
        for one, edges, mask in zip(found, thresholds, masks, strict=True):
            for threshold, tree, ruled_out in one:
                mask[int(np.searchsorted(edges, threshold)) + 1 :, tree] &= 255 - ruled_out
        return cls(thresholds, masks, table)

    def add(self, features: list[F8], out: F8) -> None:
        """Add the trees' values to (P,) `out`, tree by tree; `features` are F arrays of length P."""
        for a in range(0, len(out) if len(self.values) else 0, _PAIRS):
            left = None
            for feature, edges, mask in zip(features, self.thresholds, self.masks, strict=True):
                if len(edges):
                    rows = mask.take(np.searchsorted(edges, feature[a : a + _PAIRS]), axis=0)
                    left = rows if left is None else np.bitwise_and(left, rows, out=left)
            if left is None:
                left = np.full((len(out[a : a + _PAIRS]), len(self.values)), 255, np.uint8)
            for row, table in zip(np.ascontiguousarray(left.T), self.values, strict=True):
                out[a : a + _PAIRS] += table.take(row)
