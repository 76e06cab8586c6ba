"""Compilation of numeric functions by numba."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile a function that releases the GIL, and cache its machine code in a folder that numba chooses.

    Examples
    --------
    >>> @jit
    ... def add(a, b):
    ...     return a + b
    >>> add(1, 2)
    3
    """
    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache is writable: each process compiles for itself.
        return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]
    cache = compiled._cache
    load, save = cache.load_overload, cache.save_overload

    def load_or_compile(*args: object) -> object:
        try:
            return load(*args)
        except (ImportError, AttributeError):
            # The cache's index was written by another version and names types that were moved or renamed.
            with suppress(OSError):
                cache.flush()
            return None

    def save_or_skip(*args: object) -> None:
        # A full disk costs the next run two seconds of compilation, and must not cost this run its result.
        with suppress(OSError):
            save(*args)

    cache.load_overload, cache.save_overload = load_or_compile, save_or_skip
    return compiled  # type: ignore[no-any-return]
