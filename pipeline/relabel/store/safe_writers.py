"""Writers of arrays and faiss indexes that raise on a full disk.

`numpy.save` (through `ndarray.tofile`) and `faiss.write_index` write through a C buffer and ignore its last error. On a
full disk they leave a truncated file without an exception. Files of Python do raise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_STEP = 1 << 20  # bytes that faiss passes to the callback per call


def write_values(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write the values of an array, in C order."""
    file.write(np.ascontiguousarray(array).data)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a `.npy` file with the same bytes as `numpy.save`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> save_array(Path("a.npy"), np.arange(3))
    >>> np.load("a.npy").tolist()
    [0, 1, 2]
    """
    # `asarray` keeps a 0-d array 0-d; `ascontiguousarray` would not.
    header: Any = np.lib.format.header_data_from_array_1_0(np.asarray(array, order="C"))
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        write_values(file, array)


def save_index(path: Path, index: Any) -> None:
    """Write a faiss index with the same bytes as `faiss.write_index`."""
    import faiss

    # The type stubs of faiss lack the writer.
    library: Any = faiss
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
        except Exception:
            # faiss raises its own type for any exception of the callback.
            if errors:
                raise errors[0] from None
            raise
