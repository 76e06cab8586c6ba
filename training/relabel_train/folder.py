"""Exported folders (lookups, batch plans): all files of one export, memory-mapped and checked.

An export is built in a folder of another name and renamed, so a folder handle always refers to one export. Every file
is opened relative to that handle. Mapped files stay readable after the folder is deleted.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from relabel_train.npy_file import read_header

T = TypeVar("T")
MANIFEST = "manifest.json"
AGAIN = "Export it again."
HAS_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
"""True if files can be opened relative to a folder handle. Windows cannot."""

_PAUSES = (0.001, 0.004, 0.02, 0.05, 0.2)  # seconds; between its two renames an export has no folder
_LARGEST = 256 << 20  # bytes of a JSON file


class LookupFileError(ValueError):
    """A file of a lookup or batch plan that is missing, damaged or contradicts its description."""

    exit_code = 4


@dataclass(frozen=True, eq=False)
class MappedArray:
    """One array of an export.

    `array`: read-only view of the mapped file. A plain array: the memmap class costs a microsecond per slice.
    `buffer`: the complete file.
    `sha256`: expected digest of the file; None if unknown.
    """

    path: Path
    array: NDArray[Any]
    buffer: mmap.mmap
    sha256: str | None

    def check(self) -> None:
        """Compare the digest of the mapped bytes with the expected one."""
        # Of the mapped bytes themselves, not of the path, which may name another file by now.
        digest = hashlib.sha256(self.buffer).hexdigest()
        if self.sha256 is not None and digest != self.sha256:
            self.refuse(f"sha256 {self.sha256}", digest)

    def check_length(self, length: int) -> None:
        """Raise LookupFileError unless the array is of a length."""
        if len(self.array) != length:
            self.refuse(f"length {length}", len(self.array))

    def check_offsets(self, count: int, values: MappedArray) -> None:
        """Raise LookupFileError unless the array cuts `values` into `count` parts, as far as length and ends show."""
        self.check_length(count + 1)
        ends, total = (int(self.array[0]), int(self.array[-1])), values.array.size
        if ends != (0, total):
            self.refuse(f"offsets from 0 to {total}", f"{ends[0]} to {ends[1]}")

    def refuse(self, expected: str, actual: object) -> NoReturn:
        """Raise LookupFileError naming the file."""
        raise LookupFileError(f"{self.path}: expected {expected}, found {actual}. {AGAIN}")


class ExportFolder:
    """An open folder of an export.

    `path`: used in messages, and to open files where folders have no handles. `handle`: file descriptor of the folder.

    `texts`: content of every small file read so far.
    """

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path, self.handle = path, handle
        self.texts: dict[str, bytes] = {}

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON object."""
        raw = self.read(name)
        try:
            body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise LookupFileError(f"{self.path / name}: not readable as JSON ({brief(error)}). {AGAIN}") from error
        if not isinstance(body, dict):
            raise LookupFileError(f"{self.path / name}: expected a JSON object, found {brief(body)}. {AGAIN}")
        return body

    def read(self, name: str) -> bytes:
        """Read a small file completely; raises as `read_json`."""
        with self._open(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST:
                raise LookupFileError(f"{self.path / name}: {size:,} bytes are too many for a description. {AGAIN}")
            try:
                raw = file.read(_LARGEST)
            except OSError as error:
                self._unreadable(name, error)
        self.texts[name] = raw
        return raw

    def map(self, name: str, types: str, shape: tuple[int | None, ...], sha256: str | None = None) -> MappedArray:
        """Map an array.

        `name`: file name. `types`: accepted dtypes, separated by spaces, as ``dtype.str`` spells them. `shape`: None
        accepts any length along an axis. `sha256`: expected digest of the file, for `MappedArray.check`.
        """
        path = self.path / name
        with self._open(name) as file:
            found = os.fstat(file.fileno()).st_size
            try:
                dtype, stored, start = read_header(file)
            except OSError as error:
                self._unreadable(name, error)
            except ValueError as error:
                raise LookupFileError(f"{path}: not a valid .npy file ({error}). {AGAIN}") from error
            fits = len(stored) == len(shape) and all(n in (None, m) for n, m in zip(shape, stored, strict=True))
            if dtype not in types.split() or not fits:
                wanted = str(shape).replace("None", "any")
                raise LookupFileError(
                    f"{path}: expected {types.replace(' ', ' or ')} {wanted}, found {dtype} {stored}. {AGAIN}"
                )
            # Reading past the end of a mapped file would kill the process (SIGBUS).
            size = start + prod(stored) * np.dtype(dtype).itemsize
            if found != size:
                raise LookupFileError(
                    f"{path}: not a valid .npy file (expected {size:,} bytes, found {found:,}). {AGAIN}"
                )
            try:
                buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                self._unreadable(name, error)
        # The view keeps the map alive, and the map the file, also after the descriptor is closed.
        array: NDArray[Any] = np.ndarray(stored, dtype, buffer, start)
        return MappedArray(path, array, buffer, sha256)

    def replaced(self) -> bool:
        """Return True if another export has taken this one's place, or is about to."""
        try:
            if self.handle is None:
                # Without handles the small files, which hold digests of the others, are compared.
                return any((self.path / name).read_bytes() != raw for name, raw in self.texts.items())
            at_path, opened = os.stat(self.path), os.fstat(self.handle)  # noqa: PTH116  (the same call for both)
        except OSError:
            return True
        return (at_path.st_dev, at_path.st_ino) != (opened.st_dev, opened.st_ino)

    def _open(self, name: str) -> BinaryIO:
        """Open a regular file of the folder; raises as `read_json`."""
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        # Opening a pipe would wait for its writer.
        flags |= getattr(os, "O_NONBLOCK", 0)
        try:
            if self.handle is None:
                descriptor = os.open(self.path / name, flags)
            else:
                descriptor = os.open(name, flags, dir_fd=self.handle)
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path / name}: file not found. {AGAIN}") from None
        except OSError as error:
            self._unreadable(name, error)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise LookupFileError(f"{self.path / name}: not a regular file. {AGAIN}")
        return os.fdopen(descriptor, "rb")

    def _unreadable(self, name: str, error: Exception) -> NoReturn:
        raise LookupFileError(f"{self.path / name}: cannot be read ({brief(error)}).") from error


def open_export(path: Path, description: str, missing: str, read: Callable[[ExportFolder], T]) -> T:
    """Read one state of a folder that may be replaced meanwhile.

    `description`: name of the JSON file that `read` reads first. `missing`: says how an export is made, if there is
    none. `read`: opens everything that is needed. Called again if the folder was replaced before it was done.
    """
    # Between the two renames of an export there is no folder, so a missing one is waited for a little.
    for pause in (*_PAUSES, None):
        folder = None
        try:
            folder = ExportFolder(path, _handle(path))
            result = read(folder)
            # All files opened by one handle are of one export. Without handles, the folder must not have changed.
            if folder.handle is not None or not folder.replaced():
                return result
        except (FileNotFoundError, NotADirectoryError) as error:
            if pause is None or not (folder is None or folder.replaced()):
                if folder is None or description not in folder.texts:
                    raise FileNotFoundError(f"{path / description}: file not found. {missing}") from None
                raise LookupFileError(str(error)) from None
        except LookupFileError:
            # Files of two exports contradict each other: only if the folder stayed the same is it damage.
            if pause is None or folder is None or not folder.replaced():
                raise
        finally:
            # Maps outlive the handle.
            if folder is not None and folder.handle is not None:
                os.close(folder.handle)
        if pause is not None:
            time.sleep(pause)
    raise LookupFileError(f"{path}: replaced again and again while it was opened. Open it again.")


def read_digests(folder: ExportFolder, kind: str, description: str) -> dict[str, str]:
    """Read the sha256 of every file from `manifest.json`, and compare that of the description.

    `kind`: of the artefact: "lookup" or "plan". `description`: name of the JSON file that describes the arrays; read
    before.
    """
    path, body = folder.path / MANIFEST, folder.read_json(MANIFEST)
    digest = body.pop("digest", None)
    # The digest finds a changed value, the comparison of bytes an edit that leaves all values as they are.
    actual = hashlib.sha256(_manifest_text(body)).hexdigest()
    if digest != actual or folder.texts[MANIFEST] != _manifest_text(body | {"digest": digest}):
        raise LookupFileError(f"{path}: its digest does not fit its content. {AGAIN}")
    try:
        if body["kind"] != kind:
            raise LookupFileError(f"{path}: expected {kind}, found {brief(body['kind'])}. {AGAIN}")
        digests = {str(name): str(entry["sha256"]) for name, entry in body["files"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise LookupFileError(f"{path}: not a manifest ({error!r}). {AGAIN}") from error
    expected, actual = digests.get(description), hashlib.sha256(folder.texts[description]).hexdigest()
    if expected != actual:
        raise LookupFileError(f"{folder.path / description}: expected sha256 {expected}, found {actual}. {AGAIN}")
    return digests


def digest_of(digests: Mapping[str, str], path: Path) -> str:
    """Return the expected sha256 of a file."""
    if path.name not in digests:
        raise LookupFileError(f"{path}: not named in {MANIFEST}. {AGAIN}")
    return digests[path.name]


def _manifest_text(body: dict[str, Any]) -> bytes:
    """Return the one form in which the pipeline writes manifests."""
    try:
        return (json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except ValueError:  # an infinite number or half of a surrogate pair: never written
        return b""


def _handle(path: Path) -> int | None:
    """Open a folder; None where folders have no handles."""
    try:
        if HAS_HANDLES:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.stat(path)  # noqa: PTH116  (raises as `os.open` does)
        return None
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise LookupFileError(f"{path}: cannot be opened ({brief(error)}).") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def brief(value: object) -> str:
    """Return at most 120 characters of a value or of an error's message."""
    try:
        text = str(value) if isinstance(value, Exception) else repr(value)
    except RecursionError:
        return type(value).__name__
    return text if len(text) <= 120 else f"{text[:117]}..."
