"""`.npy` files written in pieces, so that no complete array has to be in memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from relabel.store.safe_writers import write_values
from relabel.store.workdir import Work


def write_array(work: Work, name: str, array: NDArray[Any]) -> None:
    """Write an array as `NAME.npy`, unless it is done already."""
    write_pieces(work, name, array.dtype.str, array.shape, [array])


def write_pieces(work: Work, name: str, dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write pieces that follow each other along the first axis as `NAME.npy`, unless it is done already.

    Parameters
    ----------
    work : Work
    name : str
    dtype : str
        Type of the values in numpy's notation, as in relabel_train.lookup.format.
    shape : tuple of int
        Shape of the complete array.
    pieces : iterable of arrays
        Consumed only if the file is not done.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> work = Work(Path("work"))
    >>> write_pieces(work, "rows", "<i4", (3,), iter([np.array([1, 2]), np.array([3])]))
    >>> np.load("work/rows.npy").tolist()
    [1, 2, 3]
    """
    work.file(f"{name}.npy", partial(_write, dtype, shape, pieces), rows=shape[0])


def _write(dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]], path: Path) -> None:
    count = 0
    with path.open("wb") as file:
        _write_header(file, dtype, shape)
        for piece in pieces:
            write_values(file, np.ascontiguousarray(piece, dtype))
            count += len(piece)
    # The header was written before the pieces were counted.
    if count != shape[0]:
        raise AssertionError(f"{path.name}: expected {shape[0]} rows, wrote {count}")


def _write_header(file: BinaryIO, dtype: str, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})


def npy_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of one `.npy` file.

    Examples
    --------
    >>> from relabel.store.arrays import npy_bytes
    >>> npy_bytes("<f4", (1000, 384))  # a header of 128 bytes and 4 bytes per number
    1536128
    """
    header = BytesIO()
    _write_header(header, dtype, shape)
    return len(header.getvalue()) + prod(shape) * np.dtype(dtype).itemsize
