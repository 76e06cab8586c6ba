"""Files of an export: a JSON description and `.npy` arrays, mapped and compared with the description when opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

MANIFEST = "manifest.json"
AGAIN = "Export it again."
# numpy evaluates the header of an array as a Python literal: a damaged one raises nearly anything.
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


def read_description(
    kind: type[Description], path: Path, todo: str, verify: bool, **entries: type
) -> tuple[Description, str]:
    """Read what `to_json` wrote; return it and the sha256 of the file.

    `todo`: how such an export is made. `verify`: compare the sha256 with that in `manifest.json` first. `entries`: type
    of the values of a field that is a mapping.
    """
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path}: file not found. {todo}") from None
    except OSError as error:
        raise LookupFileError(f"{path}: cannot be read ({error}). {AGAIN}") from error
    if verify:
        verify_files(path.parent, [path.name])
    try:
        body = json.loads(raw)
        if (version := body.pop("format")) != kind.FORMAT:
            raise ValueError(f"expected format {kind.FORMAT}, found {version!r:.40}")
        for name, entry in entries.items():
            body[name] = {key: entry(**value) for key, value in body[name].items()}
        # JSON has no tuples.
        about = kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in body.items()})
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise LookupFileError(f"{path}: not a description ({error!s:.200}). {AGAIN}") from error
    return about, hashlib.sha256(raw).hexdigest()


def map_array(path: Path, dtype: str, shape: Sequence[int | None]) -> NDArray[Any]:
    """Map an array, read-only, after checks of its type and shape; None accepts any length of an axis."""
    try:
        array = map_npy(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: file not found. {AGAIN}") from None
    except (OSError, ValueError) as error:
        raise LookupFileError(f"{path}: {error}. {AGAIN}") from error
    fits = len(shape) == array.ndim and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if array.dtype.str != dtype or not fits:
        wanted = f"{dtype} {tuple(shape)}".replace("None", "any")
        raise LookupFileError(f"{path}: expected {wanted}, found {array.dtype.str} {array.shape}. {AGAIN}")
    # A plain array: a slice of the memmap class takes a microsecond more.
    return array.view(np.ndarray)


def map_npy(path: Path) -> np.memmap[Any, Any]:
    """Map an array of any program: any version, byte order and memory order; raise ValueError if it is damaged.

    No pickle is loaded, and nothing is allocated for a shape that the file is too short for.
    """
    try:
        with np.errstate(over="ignore"):  # a size beyond 64 bits is refused when the array is made
            array = np.lib.format.open_memmap(str(path), mode="r")  # the path of a Path is resolved, which takes longer
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"not a valid .npy file ({reason})") from error
    # numpy maps a file that is longer than its array.
    if (size := path.stat().st_size) != (expected := array.offset + array.nbytes):
        raise ValueError(f"expected {expected:,} bytes, found {size:,}")
    return array


def verify_files(folder: Path, names: Iterable[str]) -> None:
    """Compare files with the sha256 that `manifest.json` states."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        expected = {name: files[name]["sha256"] for name in names}
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder / MANIFEST}: file not found. {AGAIN}") from None
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise LookupFileError(f"{folder / MANIFEST}: not a manifest ({error!r:.200}). {AGAIN}") from error
    for name, sha256 in expected.items():
        check_sha256(folder / name, sha256)


def check_sha256(path: Path, expected: str) -> None:
    """Compare the bytes of a file with their sha256."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: file not found. {AGAIN}") from None
    if found != expected:
        raise LookupFileError(f"{path}: expected sha256 {expected}, found {found}. {AGAIN}")
