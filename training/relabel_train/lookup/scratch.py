"""What makes small calls cheap: numbers for the columns of a batch, and memory that stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ColumnNumbers:
    """Gives the columns of a batch small numbers, in time that depends on the batch alone.

    One array over all C columns a thread, -1 everywhere between calls; the first `kept` columns keep their own number.
    """

    def __init__(self, columns: int, kept: int) -> None:
        self.columns, self.kept = columns, kept
        self._own = threading.local()

    @contextmanager
    def numbered(self, columns: NDArray[np.int32]) -> Iterator[NDArray[Any]]:
        """Yield the array in which each of some columns (repeats allowed, none kept) holds a number of its own.

        Numbers are ``kept`` to ``kept + len(columns) - 1``, not all of them used.
        """
        stop = self.kept + len(columns)
        numbers = self._room("int16" if stop <= 1 << 15 else "int32")  # half the cache for a batch of usual size
        try:
            numbers[columns] = np.arange(self.kept, stop, dtype=numbers.dtype)
            yield numbers
        finally:
            numbers[columns] = -1

    def _room(self, dtype: str) -> NDArray[Any]:
        found: NDArray[Any] | None = getattr(self._own, dtype, None)
        if found is None:
            found = np.full(self.columns, -1, dtype)
            found[: self.kept] = np.arange(self.kept)
            setattr(self._own, dtype, found)
        return found


def keep_memory() -> None:
    """Have glibc keep what a call frees for the next one.

    It gives arrays of more than 128 KiB back to the system at once, until one larger was freed; the page faults of
    getting them anew are half of a block's time. The larger one is never written to, so it costs nothing.
    """
    np.empty(1 << 20)
