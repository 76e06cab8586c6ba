"""Boosted trees as plain arrays, and their sums over many pairs: the bits that scikit-learn's own predictor gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.threads import run_chunks

I4 = NDArray[np.int32]
F8 = NDArray[np.float64]
_STEP = 1 << 14  # pairs that a thread takes at once


class Trees(NamedTuple):
    """Regression trees, one after another.

    Attributes
    ----------
    roots : (T,) int32
        Where each tree begins.
    nodes : (N, 3) int32
        Feature, left and right child of every node; feature -1 is a leaf.
    values : (N,) float64
        A leaf's value, any other node's threshold: a feature that is not larger goes left.
    """

    roots: I4
    nodes: I4
    values: F8

    @classmethod
    def none(cls) -> Trees:
        """No tree."""
        return cls(np.empty(0, np.int32), np.empty((0, 3), np.int32), np.empty(0))


def trees_of(fitted: Any) -> Trees:
    """Read the trees of a fitted HistGradientBoostingRegressor that knows numbers alone: no category, no NaN."""
    tables = [stage[0].nodes for stage in fitted._predictors]
    if not tables:
        return Trees.none()
    roots = np.cumsum([0, *(len(t) for t in tables[:-1])]).astype(np.int32)
    nodes, values = [], []
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
        What the trees begin with; NaN wherever a feature is.
    threads : int
    """
    if len(trees.roots):
        from relabel.sources.fuse.kernels import sum_trees

        run_chunks(lambda lo, hi: sum_trees(*trees, features[lo:hi], out[lo:hi]), len(out), threads, _STEP)
