"""Numbers as 32-bit codes that sort like them, so that a score and a label fit into one 64-bit key."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.scores import Floats

Codes = NDArray[np.int32]
_FLIP = np.int32(0x7FFFFFFF)


def encode(values: Floats) -> tuple[Codes, Floats | None]:
    """Give codes that sort as values do and are equal where they are.

    Numbers that float32 holds exactly are their own bits, turned so that they sort; others are counted in each row.

    Parameters
    ----------
    values : (Q, n) float32 or float64
        Without NaN.

    Returns
    -------
    codes : (Q, n) int32
    table : (Q, n) float64, optional
        Where given, code c of row q means table[q, c].
    """
    single = values.astype(np.float32)
    if values.dtype != np.float32 and not np.array_equal(single, values):
        return _counted(values)
    single += np.float32(0)  # -0 becomes 0
    bits = single.view(np.int32)
    return bits ^ ((bits >> 31) & _FLIP), None


def decode(codes: Codes, table: Floats | None) -> NDArray[np.floating[Any]]:
    """Give back what `encode` was given, for codes of the same rows in any order and number: (Q, k) float."""
    if table is not None:
        return np.take_along_axis(table, codes.astype(np.int64), axis=1)
    return np.asarray((codes ^ ((codes >> 31) & _FLIP)).view(np.float32))


def smallest(values: NDArray[Any], depth: int | None) -> NDArray[Any]:
    """Sort the `depth` smallest of each row; `values` are used up. (Q, n) to (Q, min(depth, n))."""
    if depth is not None and depth < values.shape[1]:
        values.partition(max(0, depth - 1), axis=1)
        values = values[:, :depth].copy()
    values.sort(axis=1)
    return values


def _counted(values: Floats) -> tuple[Codes, Floats]:
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    dense = np.zeros(values.shape, np.int32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=dense[:, 1:])
    codes = np.empty_like(dense)
    np.put_along_axis(codes, order, dense, axis=1)
    table = np.zeros(values.shape, values.dtype)
    np.put_along_axis(table, dense.astype(np.int64), ordered, axis=1)
    return codes, table
