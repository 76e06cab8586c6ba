"""Count inversions of many lists at once: merge counting where every merge is one vectorised sort."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TOGETHER = 1 << 17
"""Items of lists sorted together: half a MiB, so that all levels stay in a cache."""
_BLOCK = 32
"""Largest block whose pairs are compared one by one."""


def count_inversions(orders: NDArray[np.integer]) -> NDArray[np.int64]:
    """Count the pairs a < b with orders[a] > orders[b] in each row.

    Parameters
    ----------
    orders : (Q, n) int
        Each row a permutation of 0..n - 1; n at most 2^30.

    Returns
    -------
    (Q,) int64

    Notes
    -----
    Blocks of up to 32 are counted pair by pair, all blocks at once. Then blocks are joined two by two: after one sort
    of a joined block, with a bit that marks the half each item came from, the places of the left half's items say how
    many of the right half's lie before them. O(n log^2 n), by sorts that today's processors make nearly free.
    """
    queries, n = orders.shape
    step = max(1, _TOGETHER // max(1, n))
    found = [_count(orders[a : a + step]) for a in range(0, queries, step)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _count(orders: NDArray[np.integer]) -> NDArray[np.int64]:
    queries, n = orders.shape
    width, levels = n, 0
    while width > _BLOCK:
        width, levels = (width + 1) // 2, levels + 1
    width = max(1, -(-n // (1 << levels)))
    padded = width << levels
    keys = np.empty((queries, padded), np.int32)
    keys[:, :n] = orders
    keys[:, n:] = np.arange(n, padded)  # behind everything, in order: no inversion
    total = _within(keys.reshape(queries, -1, width))
    keys <<= 1
    while width < padded:
        halves = keys.reshape(-1, 2, width)
        halves[:, 0] &= -2
        halves[:, 1] |= 1
        keys.reshape(-1, 2 * width).sort(axis=1)
        left = np.flatnonzero((keys.reshape(-1) & 1) == 0).reshape(queries, -1)
        pairs = padded // (2 * width)
        starts = 2 * width * width * np.arange(queries * pairs, dtype=np.int64).reshape(queries, pairs).sum(axis=1)
        total += left.sum(axis=1) - starts - pairs * (width * (width - 1) // 2)
        width *= 2
    return total


def _within(blocks: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count inversions within blocks, (Q, blocks, width), and add them up: (Q,) int64."""
    queries, many, width = blocks.shape
    across = np.ascontiguousarray(blocks.reshape(-1, width).T)
    found = np.zeros(queries * many, np.int32)
    for i in range(width - 1):
        above = across[i] > across[i + 1 :]
        found += above.view(np.uint8).sum(axis=0, dtype=np.uint8)
    return np.asarray(found.reshape(queries, many).sum(axis=1), np.int64)
