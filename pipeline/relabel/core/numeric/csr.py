"""Ragged arrays in CSR form: row i holds the entries ``indptr[i]:indptr[i + 1]``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.scoring.references import indptr_of, ranges

__all__ = ["group", "indptr_of", "owners", "ranges"]

I8 = NDArray[np.int64]


def owners(indptr: NDArray[np.integer]) -> I8:
    """Return the row index of every entry: (E,) int64."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def group(keys: NDArray[np.integer], count: int) -> tuple[I8, I8]:
    """Group entries by key in 0..count - 1: (count + 1,) offsets, and positions in `keys` sorted by key."""
    # A stable sort keeps the order of entries with equal keys.
    return indptr_of(np.bincount(keys, minlength=count)), np.argsort(keys, kind="stable")
