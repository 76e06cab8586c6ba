"""Boosted trees as plain arrays, and their sums over many pairs, with the bits of scikit-learn's own predictor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.threads import run_chunks

I4 = NDArray[np.int32]
F8 = NDArray[np.float64]
_STEP = 1 << 14  # pairs per task of a thread


class Trees(NamedTuple):
    """T regression trees as one table of N nodes.

    Attributes
    ----------
    roots : (T,) int32
        Root of each tree.
    nodes : (N, 3) int32
        Feature, left child and right child of every node; a leaf has feature -1.
    values : (N,) float64
        Value of a leaf, or threshold of any other node: a feature that is not larger goes left.

    Examples
    --------
    One tree that adds 1 if the feature is larger than 0.5:

    >>> import numpy as np
    >>> from relabel.sources.fuse.trees import Trees, add_trees
    >>> nodes = np.array([[0, 1, 2], [-1, -1, -1], [-1, -1, -1]], np.int32)
    >>> trees = Trees(np.array([0], np.int32), nodes, np.array([0.5, 0.0, 1.0]))
    >>> out = np.array([0.1, 0.1])
    >>> add_trees(trees, np.array([[0.5], [0.6]]), out)
    >>> out
    array([0.1, 1.1])
    """

    roots: I4
    nodes: I4
    values: F8

    @classmethod
    def none(cls) -> Trees:
        """Return trees without any tree."""
        return cls(np.empty(0, np.int32), np.empty((0, 3), np.int32), np.empty(0))


def export_trees(fitted: Any) -> Trees:
    """Convert the trees of a HistGradientBoostingRegressor that was fitted to numbers: no categories, no NaN."""
    tables = [stage[0].nodes for stage in fitted._predictors]
    if not tables:
        return Trees.none()
    roots = np.cumsum([0, *(len(t) for t in tables[:-1])]).astype(np.int32)
    nodes, values = [], []
    # scikit-learn numbers the nodes of each tree from 0, with children after their parent. The root's index is added.
    for root, table in zip(roots, tables, strict=True):
        leaf = table["is_leaf"].astype(bool)
        children = [np.where(leaf, -1, table[side].astype(np.int64) + root) for side in ("left", "right")]
        nodes.append(np.stack([np.where(leaf, -1, table["feature_idx"]), *children], axis=1).astype(np.int32))
        values.append(np.where(leaf, table["value"], table["num_threshold"]))
    return Trees(roots, np.concatenate(nodes), np.concatenate(values).astype(np.float64))


def add_trees(trees: Trees, features: F8, out: F8, threads: int = 1) -> None:
    """Add the trees' values to `out`, tree by tree.

    Parameters
    ----------
    trees : Trees
    features : (P, F) float64, C-contiguous
    out : (P,) float64
        Initial values, which are changed in place. Must be NaN wherever a feature is.
    threads : int
    """
    if len(trees.roots):
        from relabel.sources.fuse.kernels import sum_trees

        run_chunks(lambda lo, hi: sum_trees(*trees, features[lo:hi], out[lo:hi]), len(out), threads, _STEP)
