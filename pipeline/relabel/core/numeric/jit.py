"""Compilation of numeric functions by numba."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile without the GIL; keep the machine code where a folder can be written (numba picks it)."""
    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]
    cache = compiled._cache
    load, save = cache.load_overload, cache.save_overload

    def load_or_compile(*args: object) -> object:
        try:
            return load(*args)
        except (ImportError, AttributeError):  # an index of another version names types that were moved or renamed
            with suppress(OSError):
                cache.flush()
            return None

    def save_or_skip(*args: object) -> None:
        with suppress(OSError):  # a full disk costs the next run two seconds, not this run its result
            save(*args)

    cache.load_overload, cache.save_overload = load_or_compile, save_or_skip
    return compiled  # type: ignore[no-any-return]
