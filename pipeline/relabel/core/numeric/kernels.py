"""Compilation of numeric functions by numba, and the pooling that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numba

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


FIRST, MAX, MEAN = 0, 1, 2
"""Codes of poolings in compiled functions."""


@jit
def pool_next(pooled: float, score: float, pooling: int) -> float:
    """Add the score of one more reference to a sum (`MEAN`) or a maximum; NaN stays NaN."""
    if pooling == MEAN:
        return pooled + score
    # `score != score` holds for NaN alone, which no comparison would keep.
    return score if score > pooled or score != score else pooled
