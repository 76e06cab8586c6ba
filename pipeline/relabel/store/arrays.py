"""Writers of arrays, whole or in pieces, and of faiss indexes, that raise on a full disk; tables that a file holds.

`numpy.save` (through `ndarray.tofile`) and `faiss.write_index` write through a C buffer and ignore its last error. On a
full disk they leave a truncated file without an exception. Files of Python do raise.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.store.workdir import Work


def save_index(path: Path, index: Any) -> None:
    """Write a faiss index with the same bytes as `faiss.write_index`."""
    import faiss

    # The type stubs of faiss lack the writer.
    library: Any = faiss
    with path.open("wb") as file:
        library.write_index(index, library.PyCallbackIOWriter(file.write, 1 << 20))


def write_array(work: Work, name: str, array: NDArray[Any]) -> None:
    """Write an array as `NAME.npy`, with the same bytes as `numpy.save`, unless it is done already."""
    write_pieces(work, name, array.dtype.str, array.shape, [array])


def write_pieces(work: Work, name: str, dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write pieces that follow each other along the first axis as `NAME.npy`, unless it is done already.

    `dtype`: type of the values in numpy's notation, as in relabel_train.lookup.format. `shape`: shape of the complete
    array. `pieces`: consumed only if the file is not done.
    """
    work.file(f"{name}.npy", lambda path: save_pieces(path, dtype, shape, pieces))


def save_pieces(path: Path, dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write pieces that follow each other along the first axis as one `.npy` file (see `write_pieces`)."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype).data)


def map_tables(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return tables as one that is mapped from a file, so that it takes no memory that the system cannot reclaim.

    `path`: file for the rows. Its name is removed, and the system frees its space with the table. `schema`: schema of
    every table.
    """
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for table in tables:
                writer.write_table(table)
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_stream(source).read_all()
    finally:
        path.unlink(missing_ok=True)
