"""Memory that this process holds, and gives back."""

from __future__ import annotations

import ctypes
import gc
import sys

import psutil
import pyarrow as pa

SMALL = 1 << 30
"""Bytes up to which a process is not worth searching for what it no longer uses: that takes tenths of a second."""


def held() -> int:
    """Bytes that this process has in memory, after it gave back what it no longer uses."""
    release()
    return _resident()


def release() -> None:
    """Give the system back what the allocators of a large process keep for later.

    A stage that comes after a large one would otherwise pay for it: after encoding with a sentence encoder Arrow and
    the C library keep 0.6 GiB, of no use to the next stage.
    """
    if _resident() < SMALL:
        return
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc alone has it
            trim(0)


def _resident() -> int:
    found: int = psutil.Process().memory_info().rss
    return found
