"""Arrays of rows of varying length in CSR form: row i holds the entries ``indptr[i]:indptr[i + 1]``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

I8 = NDArray[np.int64]


def indptr_of(sizes: Sequence[int] | NDArray[np.integer]) -> I8:
    """Return the row pointers of N rows, (N + 1,) int64, given the number of entries per row."""
    indptr = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return indptr


def owners(indptr: NDArray[np.integer]) -> I8:
    """Return the row of every entry: (E,) int64."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def ranges(starts: NDArray[np.integer], sizes: NDArray[np.integer]) -> I8:
    """Concatenate ``arange(start, start + size)`` of N ranges: (sum of sizes,) int64."""
    # Each entry is its global position plus the constant offset between its range's start and the range's position.
    out = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes).astype(np.int64, copy=False)
    out += np.arange(len(out))
    return out


def group(keys: NDArray[np.integer], count: int) -> tuple[I8, I8]:
    """Group entries by their key in 0..count - 1: (count + 1,) offsets and positions in `keys`, in order."""
    # The stable sort keeps entries of one key in their order.
    return indptr_of(np.bincount(keys, minlength=count)), np.argsort(keys, kind="stable")
