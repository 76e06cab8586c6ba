"""Files that are either whole or not there: a temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


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


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a temporary file beside `path`, then put it in place whole.

    On any error the temporary file is removed and `path` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(temporary)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all."""
    write_atomic(path, lambda p: void(p.write_text(text, encoding="utf-8")))


def void(_: object) -> None:
    """Drop a value (for lambdas that must return None)."""
