"""Files of an export: a JSON description and `.npy` arrays, mapped and compared with the description when opened."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

MANIFEST = "manifest.json"
AGAIN = "Export it again."
MAX_JSON = 1 << 30
"""Maximum size of a description or manifest in bytes. One of 10 million image ids takes a quarter of it."""


class LookupFileError(ValueError):
    """A file of an export or of features that is damaged or contradicts its description."""

    exit_code = 4


@dataclass(frozen=True)
class ExportDescription:
    """Base of the content of an export's JSON file; `FORMAT` is its version."""

    FORMAT: ClassVar[int]

    def to_json(self) -> str:
        """Return stable, readable JSON."""
        body = {"format": self.FORMAT, **asdict(self)}
        return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


Description = TypeVar("Description", bound=ExportDescription)


@contextmanager
def naming(path: Path, hint: str = AGAIN) -> Iterator[None]:
    """Raise FileNotFoundError or LookupFileError, with path and remedy, for the errors of reading a file."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path}: file not found. {hint}") from None
    except Exception as error:  # damaged content raises nearly anything
        reason = getattr(error, "strerror", None) or (str(error) if isinstance(error, ValueError) else repr(error))
        raise LookupFileError(f"{path}: {reason:.200}. {hint}") from error


def size_of(path: Path) -> int:
    """Return the size of a regular file; raise OSError for anything else, such as a pipe, because it may never end."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return about.st_size


def read_file(path: Path, most: int = MAX_JSON) -> bytes:
    """Read a regular file of at most `most` bytes; raise OSError for any other."""
    if size_of(path) > most:
        raise OSError(errno.EOVERFLOW, f"more than {most:,} bytes", str(path))
    return path.read_bytes()


def check_name(name: str) -> str:
    """Return a name that others gave to a file of a folder; raise ValueError if it leads out of the folder."""
    if {"", ".", ".."} & {*name.split("/")} or "\0" in name:
        raise ValueError(f"it names a file outside its folder: {name!r:.200}")
    return name


def read_description(kind: type[Description], path: Path, hint: str, verify: bool) -> Description:
    """Read and return what `to_json` wrote.

    `hint`: how such an export is made. `verify`: compare the sha256 with that in `manifest.json`.
    """
    with naming(path, hint):
        body = json.loads(read_file(path))
        if (version := body.pop("format")) != kind.FORMAT:
            raise ValueError(f"expected format {kind.FORMAT}, found {version!r:.40}")
        about: Description = read_value(kind, body)
    if verify:
        verify_files(path.parent, [path.name])
    return about


def read_value(kind: Any, value: Any, name: str = "") -> Any:
    """Convert a value of JSON to a type, possibly a dataclass; raise ValueError if it is of another type.

    Whole numbers must not be negative, others must be finite. `name`: of the field, for the error.
    """
    origin, args, found, kinds = get_origin(kind), get_args(kind), type(value), _kinds(kind)
    if kinds and found is dict and value.keys() == kinds.keys():
        return kind(**{key: read_value(kinds[key], entry, key) for key, entry in value.items()})
    if origin is dict and found is dict:
        # The keys of entries that describe files are their names.
        check = check_name if _kinds(args[1]) else str
        return {check(key): read_value(args[1], entry, key) for key, entry in value.items()}
    # JSON has no tuples.
    if origin is tuple and found is list and (... in args or len(args) == len(value)):
        each = args[:1] * len(value) if ... in args else args
        return tuple(read_value(*pair, name) for pair in zip(each, value, strict=True))
    if origin is UnionType and value is not None:
        return read_value(args[0], value, name)
    number = found in (int, float) and -math.inf < value < math.inf
    fits = {float: number, int: found is int and value >= 0, Literal: value in args, UnionType: True, Any: True}
    if not fits.get(origin or kind, found is kind):
        raise ValueError(f"{name}: expected {kind if origin else kind.__name__}, found {value!r:.40}")
    return value


@cache
def _kinds(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass by name; none of any other type."""
    return {field.name: get_type_hints(kind)[field.name] for field in fields(kind)} if is_dataclass(kind) else {}


def map_array(path: Path, dtype: str, shape: Sequence[int | None]) -> NDArray[Any]:
    """Map an array, read-only, after checks of its type and shape; None accepts any length of an axis."""
    with naming(path):
        array = map_npy(path)
        fits = len(shape) == array.ndim and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if array.dtype.str != dtype or not fits:
            wanted = f"{dtype} {tuple(shape)}".replace("None", "any")
            raise ValueError(f"expected {wanted}, found {array.dtype.str} {array.shape}")
    # A plain array: a slice of the memmap class takes a microsecond more.
    return array.view(np.ndarray)


def map_npy(path: Path) -> np.memmap[Any, Any]:
    """Map an array of any program: any version, byte order and memory order; raise ValueError if it is damaged.

    No pickle is loaded, and nothing is allocated for a shape that the file is too short for.
    """
    size = size_of(path)
    try:
        with np.errstate(over="ignore"):  # a size beyond 64 bits raises an error when the array is created
            array = np.lib.format.open_memmap(str(path), mode="r")  # numpy resolves a Path, so a str is faster
    except Exception as error:  # numpy evaluates the header as a Python literal: a damaged one raises nearly anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"not a valid .npy file ({reason})") from error
    # numpy maps a file that is longer than its array.
    if size != (expected := array.offset + array.nbytes):
        raise ValueError(f"expected {expected:,} bytes, found {size:,}")
    return array


def verify_files(folder: Path, names: Iterable[str]) -> None:
    """Compare files with the sha256 that `manifest.json` states."""
    with naming(folder / MANIFEST):
        files = json.loads(read_file(folder / MANIFEST))["files"]
        expected = {name: files[name]["sha256"] for name in names}
    for name, sha256 in expected.items():
        check_sha256(folder / name, sha256)


def check_sha256(path: Path, expected: str) -> None:
    """Compare the bytes of a file with their sha256."""
    with naming(path):
        if (found := sha256_file(path)) != expected:
            raise ValueError(f"expected sha256 {expected}, found {found}")


def sha256_file(path: Path) -> str:
    """Return the sha256 of a regular file, read in pieces; OSError for any other."""
    size_of(path)
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
