"""Compiled heaps, in which searches that score pair by pair keep the k best pairs of a query.

A heap holds the k best pairs by (-score, row), with the worst of them at position 0. An empty slot has score -1 and the
largest int32 as its row, so any pair with a score of at least 0 replaces it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit

I4 = NDArray[np.int32]
F8 = NDArray[np.float64]


@jit
def heap_push(score: float, row: int, scores: F8, rows: I4, width: int) -> bool:
    """Replace the worst of the first `width` pairs unless the new pair is worse, and return whether it was taken."""
    # The root is the worst pair kept: a pair that ranks after it cannot enter the heap.
    if score < scores[0] or (score == scores[0] and row > rows[0]):
        return False
    # Sift down from the root: the new pair sinks until both children rank before it.
    at, child = 0, 1
    while child < width:
        # Of two children the worse one moves up, or the other would end above a worse pair.
        sibling = child + 1
        if sibling < width and (
            scores[sibling] < scores[child] or (scores[sibling] == scores[child] and rows[sibling] > rows[child])
        ):
            child = sibling
        # Stop where the new pair is at least as bad as the worse child.
        if score < scores[child] or (score == scores[child] and row > rows[child]):
            break
        scores[at], rows[at] = scores[child], rows[child]
        at, child = child, 2 * child + 1
    scores[at], rows[at] = score, row
    return True


@jit
def sort_heaps(rows: I4, scores: F8) -> None:
    """Sort M heaps, (M, K) int32 and float64, in place into lists by (-score, row)."""
    for m in range(len(rows)):
        s, r = scores[m], rows[m]
        for last in range(len(s) - 1, 0, -1):
            # The worst remaining pair belongs at the end; the pair from the end sinks into the heap in front of it.
            score, row, worst, worst_row = s[last], r[last], s[0], r[0]
            heap_push(score, row, s[:last], r[:last], last)
            s[last], r[last] = worst, worst_row
