"""Writers of arrays and faiss indexes that raise on a full disk, and memory-mapped tables.

`numpy.save` (through `ndarray.tofile`) and `faiss.write_index` write through a C buffer and ignore its last error. On a
full disk, they leave a truncated file without raising an exception. Python's file objects raise one.
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

    # PyCallbackIOWriter is missing in the type stubs of faiss.
    library: Any = faiss
    with path.open("wb") as file:
        library.write_index(index, library.PyCallbackIOWriter(file.write, 1 << 20))


def write_array(work: Work, name: str, array: NDArray[Any]) -> None:
    """Write an array as `NAME.npy`, with the same bytes as `numpy.save`, unless the file exists."""
    write_pieces(work, name, array.dtype.str, array.shape, [array])


def write_pieces(work: Work, name: str, dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write consecutive pieces along the first axis as one `NAME.npy`, unless the file exists.

    `dtype`: numpy's dtype string, as in relabel_train.lookup.format. `shape`: shape of the complete array. `pieces`:
    not consumed if the file exists.
    """
    work.file(f"{name}.npy", lambda path: save_pieces(path, dtype, shape, pieces))


def save_pieces(path: Path, dtype: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write consecutive pieces along the first axis as one `.npy` file; see `write_pieces`."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype).data)


def map_tables(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate tables into one that is memory-mapped from a file. The system can reclaim its memory.

    `path`: temporary file for the rows. It is unlinked, and its space is freed with the table. `schema`: schema of all
    tables.
    """
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for table in tables:
                writer.write_table(table)
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_stream(source).read_all()
    finally:
        path.unlink(missing_ok=True)
