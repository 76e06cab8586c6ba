"""`.npy` files written piece by piece, so that no array has to be held whole."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.store.safe_writers import write_values
from relabel.store.workdir import Work


def write_array(work: Work, name: str, array: NDArray[Any]) -> None:
    """Write `NAME.npy`, unless it is done."""
    write_pieces(work, name, array.dtype.str, array.shape, [array])


def write_pieces(work: Work, name: str, dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write `NAME.npy` of pieces that follow each other along the first axis, unless it is done.

    Parameters
    ----------
    work : Work
    name : str
    dtype : str
        As in relabel_train.lookup.format.
    shape : tuple of int
        Of the whole.
    pieces : iterable of arrays
        Asked for only if the file is not done.
    """
    work.file(f"{name}.npy", partial(_write, dtype, shape, pieces), rows=shape[0])


def _write(dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]], path: Path) -> None:
    count = 0
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        for piece in pieces:
            write_values(file, np.ascontiguousarray(piece, dtype))
            count += len(piece)
    if count != shape[0]:
        raise AssertionError(f"{path.name}: {count} rows were written, {shape[0]} were promised")
