"""Arrays of rows of varying length in CSR form: row i holds the entries ``indptr[i]:indptr[i + 1]``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

I8 = NDArray[np.int64]


def indptr_of(sizes: Sequence[int] | NDArray[np.integer]) -> I8:
    """Return the row pointers of N rows, (N + 1,) int64, given the number of entries per row.

    Examples
    --------
    >>> indptr_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    indptr = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return indptr


def owners(indptr: NDArray[np.integer]) -> I8:
    """Return the row of every entry: (E,) int64.

    Examples
    --------
    >>> owners(indptr_of([2, 0, 3])).tolist()
    [0, 0, 2, 2, 2]
    """
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def ranges(starts: NDArray[np.integer], sizes: NDArray[np.integer]) -> I8:
    """Concatenate ``arange(start, start + size)`` of N ranges: (sum of sizes,) int64.

    Examples
    --------
    >>> import numpy as np
    >>> ranges(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    # Each entry is its global position plus the constant offset between its range's start and the range's position.
    out = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes).astype(np.int64, copy=False)
    out += np.arange(len(out))
    return out


def group(keys: NDArray[np.integer], count: int) -> tuple[I8, I8]:
    """Group E entries by their key in 0..count - 1.

    Returns
    -------
    indptr : (count + 1,) int64
    entries : (E,) int64
        Positions in `keys`, key by key. Entries of one key keep their order.

    Examples
    --------
    >>> import numpy as np
    >>> indptr, entries = group(np.array([2, 0, 2]), 3)
    >>> indptr.tolist(), entries.tolist()
    ([0, 1, 1, 3], [1, 0, 2])
    """
    # The stable sort keeps entries of one key in their order.
    return indptr_of(np.bincount(keys, minlength=count)), np.argsort(keys, kind="stable")
