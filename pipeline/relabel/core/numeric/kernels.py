"""Compilation of numeric functions by numba, and the compiled heaps and pooling that several searches share.

A heap holds the k best pairs by (-score, row), with the worst of them at position 0. An empty slot has score -1 and the
largest int32 as its row, so any pair with a score of at least 0 replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile a function that releases the GIL, and cache its machine code in a folder that numba chooses."""
    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache is writable: each process compiles for itself.
        return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]
    cache = compiled._cache
    for name in ("load_overload", "save_overload"):
        setattr(cache, name, partial(_forgive, cache, getattr(cache, name)))
    return compiled  # type: ignore[no-any-return]


def _forgive(cache: Any, method: Callable[..., object], *args: object) -> object:
    """Call a method of a cache; where it fails, empty the cache, so that the function is compiled again."""
    try:
        return method(*args)
    # The index of another version may name types that were moved or renamed, and a disk may be full.
    except (ImportError, AttributeError, OSError):
        with suppress(OSError):
            cache.flush()
        return None


I4 = NDArray[np.int32]
F8 = NDArray[np.float64]
PAIRED, MAX, MEAN = 0, 1, 2
"""Codes of poolings in compiled functions."""


@jit
def pool_next(pooled: float, score: float, pooling: int) -> float:
    """Add the score of one more reference to a sum (`MEAN`) or a maximum; NaN stays NaN."""
    if pooling == MEAN:
        return pooled + score
    # `score != score` holds for NaN alone, which no comparison would keep.
    return score if score > pooled or score != score else pooled


@jit
def push(score: float, row: int, scores: F8, rows: I4, width: int) -> bool:
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
            push(score, row, s[:last], r[:last], last)
            s[last], r[last] = worst, worst_row
