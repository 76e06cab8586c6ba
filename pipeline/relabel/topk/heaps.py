"""Compiled heaps that keep the k best pairs of a query, for searches that score pair by pair.

A heap holds the k best pairs by (-score, row), with the worst pair at position 0. An empty slot has score -1 and the
maximum int32 as its row, so any pair with a score of at least 0 replaces it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit

I4 = NDArray[np.int32]
F8 = NDArray[np.float64]


@jit
def heap_push(score: float, row: int, scores: F8, rows: I4, width: int) -> bool:
    """Replace the worst of the first `width` pairs if the new pair is better, and return whether it was replaced."""
    # The root is the worst pair of the heap.
    if score < scores[0] or (score == scores[0] and row > rows[0]):
        return False
    # Sift down: the new pair sinks from the root until both children rank before it.
    at, child = 0, 1
    while child < width:
        # Move the worse of the two children up, to keep every parent worse than its children.
        sibling = child + 1
        if sibling < width and (
            scores[sibling] < scores[child] or (scores[sibling] == scores[child] and rows[sibling] > rows[child])
        ):
            child = sibling
        # Stop when the new pair is at least as bad as the worse child.
        if score < scores[child] or (score == scores[child] and row > rows[child]):
            break
        scores[at], rows[at] = scores[child], rows[child]
        at, child = child, 2 * child + 1
    scores[at], rows[at] = score, row
    return True


@jit
def sort_heaps(rows: I4, scores: F8) -> None:
    """Sort M heaps in place by (-score, row). `rows`, `scores`: (M, K) int32 and float64."""
    for m in range(len(rows)):
        s, r = scores[m], rows[m]
        for last in range(len(s) - 1, 0, -1):
            # Swap the worst remaining pair to the end, and sift the pair from the end into the rest of the heap.
            score, row, worst, worst_row = s[last], r[last], s[0], r[0]
            heap_push(score, row, s[:last], r[:last], last)
            s[last], r[last] = worst, worst_row
