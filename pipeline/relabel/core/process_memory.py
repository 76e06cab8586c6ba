"""Resident memory of this process, and its release to the system."""

from __future__ import annotations

import ctypes
import gc
import sys

import psutil
import pyarrow as pa

MIN_RELEASE = 1 << 30
"""Resident bytes below which `release_memory` does nothing, because it takes tenths of a second."""


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, after `release_memory`.

    Examples
    --------
    >>> resident_bytes() > 0
    True
    """
    release_memory()
    return _resident()


def release_memory() -> None:
    """Return memory that the allocators of a large process keep for later use to the system.

    Without it, a stage after a large one has less memory: after encoding with a sentence encoder, Arrow and the C
    library keep 0.6 GiB that the next stage cannot use.
    """
    if _resident() < MIN_RELEASE:
        return
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        # Only glibc has this function.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _resident() -> int:
    size: int = psutil.Process().memory_info().rss
    return size
