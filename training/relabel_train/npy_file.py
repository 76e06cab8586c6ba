"""Readers of `.npy` files that never load pickles and never trust a header.

`read_header` reads the one form that this project writes: version 1.0, C order, no objects. `map_npy` maps files that
other programs wrote: any version, byte order and memory order, of numbers or text.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_VERSION = b"\x01\x00"
_LONGEST = 4096  # bytes of a header
# numpy evaluates the header as a Python literal: a damaged one raises nearly anything.
_DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    TypeError,
    SyntaxError,
    TokenError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class Header(NamedTuple):
    """Type and shape of an array, and the offset of its values in the file, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    start: int


def read_header(file: BinaryIO) -> Header:
    """Read the header of an array as this project writes it."""
    magic, length = file.read(len(_MAGIC + _VERSION)), file.read(2)
    if magic != _MAGIC + _VERSION or len(length) < 2:
        raise ValueError("no header of version 1.0")
    # A damaged length must not read megabytes.
    text = file.read(min(_LONGEST, int.from_bytes(length, "little")))
    if len(text) != int.from_bytes(length, "little"):
        raise ValueError("its header is cut short" if len(text) < _LONGEST else "its header is too long")
    return Header(*_parse(text), len(magic) + len(length) + len(text))


@lru_cache(64)
def _parse(text: bytes) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape of a header. Cached, since shards of one export have equal headers."""
    try:
        body = ast.literal_eval(text.decode("ascii"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"its header is no dictionary: {_brief(error)}") from error
    if not isinstance(body, dict) or set(body) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header lacks descr, fortran_order or shape")
    dtype, shape = body["descr"], body["shape"]
    if not isinstance(dtype, str) or dtype.endswith("O"):
        raise ValueError("it holds objects or records")
    if body["fortran_order"] is not False:
        raise ValueError("its values are in Fortran order")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("its shape is no tuple of lengths")
    return dtype, shape


def map_npy(path: Path) -> NDArray[Any]:
    """Map an array; nothing is allocated for a shape that the file is too short for."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("it does not begin as numpy.save writes it")
        with np.errstate(over="ignore"):  # a size beyond 64 bits is refused when the array is made
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        raise ValueError(f"not a valid .npy file ({_brief(error)})") from error
    if array.dtype.hasobject:  # numpy maps the structure of objects that it would not load
        raise ValueError("not a valid .npy file (it holds Python objects)")
    return array


def _brief(error: BaseException) -> str:
    """Return at most 200 characters of an error's message, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
