"""Arrays on disk, memory-mapped and checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.format import Description, LookupFileError


def open_arrays(folder: Path, description: Description, verify: bool) -> dict[str, NDArray[Any]]:
    """Map every array of a lookup.

    Parameters
    ----------
    folder : Path
    description : Description
    verify : bool
        Read every byte and hold it to its sha256; without, types and shapes alone.

    Raises
    ------
    LookupFileError
        Naming the file, what was expected and what was found.
    """
    found = {}
    for name, (types, dimensions) in description.schema.items():
        entry, path = description.arrays[name], folder / f"{name}.npy"
        array = _map(path)
        if array.dtype.str not in types.split() or array.ndim != dimensions or array.shape != entry.shape:
            expected = f"{types.replace(' ', ' or ')} {entry.shape}"
            raise LookupFileError(
                f"{path}: expected {expected}, found {array.dtype.str} {array.shape}. Export it again."
            )
        if verify:
            with path.open("rb") as handle:
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
            if digest != entry.sha256:
                raise LookupFileError(f"{path}: expected sha256 {entry.sha256}, found {digest}. Export it again.")
        found[name] = array
    return found


def _map(path: Path) -> NDArray[Any]:
    """Map a `.npy` file, as a plain array: the memmap class costs a microsecond a slice."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError:
        raise LookupFileError(f"{path}: not there. Export it again.") from None
    except (OSError, ValueError) as error:
        raise LookupFileError(f"{path}: not a whole .npy file ({error}). Export it again.") from error
