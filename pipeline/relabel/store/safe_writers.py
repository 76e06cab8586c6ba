"""Arrays and faiss indexes on disk, by writers that fail when the disk does.

`ndarray.tofile`, and so `numpy.save`, and `faiss.write_index` go through a buffer of C's whose last error nobody looks
at: on a full disk they leave a file without its end, and say nothing. Python's files do raise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_STEP = 1 << 20  # bytes that faiss hands over at once


def write_values(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write the values of an array, in C order."""
    file.write(np.ascontiguousarray(array).data)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a `.npy` file, the same bytes as `numpy.save`."""
    about: Any = np.lib.format.header_data_from_array_1_0(np.asarray(array, order="C"))  # 0-d stays 0-d
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, about)
        write_values(file, array)


def save_index(path: Path, index: Any) -> None:
    """Write a faiss index, the same bytes as `faiss.write_index`."""
    import faiss

    library: Any = faiss  # its stubs lack the writer
    errors: list[OSError] = []
    with path.open("wb") as file:

        def write(data: bytes) -> None:
            try:
                file.write(data)
            except OSError as error:
                errors.append(error)
                raise

        try:
            library.write_index(index, library.PyCallbackIOWriter(write, _STEP))
        except Exception:  # of faiss's own, whatever the callback raised
            if errors:
                raise errors[0] from None
            raise
