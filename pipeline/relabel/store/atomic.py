"""Files that are either whole or not there: a temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
_PART = re.compile(r"-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)\.part$")


def sha256_file(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable (a no-op where folders cannot be opened)."""
    with suppress(PermissionError):  # Windows refuses to open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each one durable: a file is no safer than the name of its folder."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a temporary file beside `path`, then put it in place whole.

    On any error the temporary file is removed and `path` is as it was. What a killed process left of the same file is
    removed too.
    """
    _write(path, write, _sync)


def write_hashed(path: Path, write: Callable[[Path], object]) -> tuple[str, int]:
    """Write as `write_atomic` does; return the file's sha256 and size.

    The bytes are hashed while the disk takes them.
    """

    def sync(temporary: Path) -> tuple[str, int]:
        with ThreadPoolExecutor(1) as pool:
            hashed = pool.submit(sha256_file, temporary)
            _sync(temporary)
            return hashed.result(), temporary.stat().st_size

    return _write(path, write, sync)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all."""
    write_atomic(path, lambda p: p.write_bytes(text.encode()))


def _write(path: Path, write: Callable[[Path], object], sync: Callable[[Path], T]) -> T:
    make_folder(path.parent)
    _clear(path)
    temporary = path.with_name(f".{path.name}-{_HOST}-{os.getpid()}.part")
    try:
        write(temporary)
        result = sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return result


def is_temporary(name: str) -> bool:
    """Return whether a file's name is one under which `write_atomic` fills a file."""
    return name.startswith(".") and _PART.search(name) is not None


def _sync(path: Path) -> None:
    with path.open("rb+") as handle:
        os.fsync(handle.fileno())


def _clear(path: Path) -> None:
    """Remove what processes of this machine that are gone left of a file."""
    start = f".{path.name}-"
    for name in os.listdir(path.parent):  # noqa: PTH208  (a glob would read brackets in the name as a pattern)
        if not name.startswith(start) or (found := _PART.fullmatch(name, len(start) - 1)) is None:
            continue
        import psutil

        if found["host"] == _HOST and not psutil.pid_exists(int(found["pid"])):
            path.with_name(name).unlink(missing_ok=True)
