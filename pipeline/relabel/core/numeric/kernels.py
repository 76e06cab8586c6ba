"""Compilation of numeric functions with numba, and the pooling shared by several of them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile a function that releases the GIL, and cache its machine code in numba's cache folder."""
    compiled = numba.njit(nogil=True)(function)
    # If neither the package's folder nor the user's cache is writable, every process compiles the function again.
    with suppress(RuntimeError):
        compiled._cache = _Cache(function)
    return compiled  # type: ignore[no-any-return]


@cache
def _folder_name() -> str:
    """Return a folder name that changes with the code of any compiled function.

    numba compares only the file of a function, but the machine code also contains functions and constants of others.
    """
    folders = {path.parent for path in Path(__file__).parents[2].rglob("*.py") if b"@jit" in path.read_bytes()}
    modules = sorted(path for folder in folders for path in folder.glob("*.py"))
    return f"relabel-{hashlib.sha256(b''.join(path.read_bytes() for path in modules)).hexdigest()[:16]}"


class _Place(CompileResultCacheImpl):  # type: ignore[misc]
    """Paths of numba's cache files, in a subfolder of numba's folder."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        folder = Path(self.locator.get_cache_path(), _folder_name())
        self.locator.get_cache_path = lambda: str(folder)


class _Cache(FunctionCache):  # type: ignore[misc]
    """A cache that never raises: if it cannot be read, it is deleted and the function is compiled again."""

    _impl_class = _Place

    def load_overload(self, *args: Any) -> Any:
        try:
            return super().load_overload(*args)
        # Damaged pickles raise exceptions of any type.
        except Exception:
            shutil.rmtree(self.cache_path, ignore_errors=True)
            return None

    def save_overload(self, *args: Any) -> None:
        # The disk may be full, or another process may have removed the folder.
        with suppress(Exception):
            super().save_overload(*args)
            # Otherwise machine code of older versions would never be deleted.
            for path in {*Path(self.cache_path).parent.glob("relabel-*")} - {Path(self.cache_path)}:
                shutil.rmtree(path, ignore_errors=True)


FIRST, MAX, MEAN = 0, 1, 2
"""Codes of poolings in compiled functions."""


@jit
def pool_next(pooled: float, score: float, pooling: int) -> float:
    """Add the score of one more reference to a sum (`MEAN`) or a maximum; NaN stays NaN."""
    if pooling == MEAN:
        return pooled + score
    # `score != score` is true only for NaN, which a comparison would drop.
    return score if score > pooled or score != score else pooled
