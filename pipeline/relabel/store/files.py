"""Durable files with reproducible bytes: written under a temporary name, fsync, rename, fsync of the folder.

Plain Parquet files have a size that depends on the shape of the table only, so that it is known before the values are.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel_train.files import sha256_file

_SETTLED = 2.0  # seconds
_durable = ContextVar("durable", default=True)


def input_sha256(path: Path, compute: Callable[[Path], str] | None = None, name: str = "") -> str:
    """Return the sha256 of a file that artefacts are made from, remembered between processes.

    `compute`: returns another sha256 of the content, which `name` distinguishes.

    The file is read again if its size, or the time of its last change, is another.
    """
    key = f"{path.absolute()} {name}".encode(errors="surrogateescape")
    known = cache_folder("sha256") / hashlib.sha256(key).hexdigest()
    with suppress(OSError, ValueError):
        recorded, sha256 = known.read_text(encoding="ascii").rsplit(" ", 1)
        if recorded == _state(path.stat()) and len(bytes.fromhex(sha256)) == 32:
            return sha256
    started = time.time()
    # Changes through a map set the time of a file only once until they are written to the disk. Other programs may
    # hold such a map (`np.memmap`). Some file systems that are only read cannot do this.
    with suppress(OSError), path.open("rb") as handle:
        os.fsync(handle.fileno())
    now = path.stat()
    sha256 = (compute or sha256_file)(path)
    # A file that is still written may change once more within one tick of the clock of its file system.
    if started - max(now.st_mtime, now.st_ctime) > _SETTLED and not _is_in_memory(path):
        with suppress(OSError):
            write_text(known, f"{_state(now)} {sha256}")
    return sha256


def cache_folder(name: str) -> Path:
    """Return a folder of the user's cache; what it holds can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relabel" / name


def _state(now: os.stat_result) -> str:
    return f"{now.st_size} {now.st_mtime_ns} {now.st_ctime_ns}"


def _is_in_memory(path: Path) -> bool:
    """Return whether a file lies in memory, where changes through a map do not set its time."""
    import psutil

    types = {mounted.mountpoint: mounted.fstype for mounted in psutil.disk_partitions(all=True)}
    return next((types.get(str(p)) for p in path.resolve().parents if p.is_mount()), "") in ("tmpfs", "ramfs")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is removed at the end of a `with` block, in which files are not made durable."""
    token = _durable.set(False)
    try:
        with TemporaryDirectory(prefix="relabel-") as folder:
            yield Path(folder)
    finally:
        _durable.reset(token)


def _sync(handle: int) -> None:
    if _durable.get():
        os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, each of them durable.

    A file survives a power cut only if the name of its folder does.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file completely or not at all.

    After an error the temporary file is removed and `path` is unchanged. Temporary files that killed processes left of
    the same file are removed as well.

    `write`: takes the path of the temporary file beside `path` and fills it. Its result is ignored.
    """
    make_folder(path.parent)
    # The name holds host and process, so that writers of one file never share a temporary file.
    start = f".{path.name}-{os.uname().nodename}-"
    for stale in path.parent.glob(f"{glob.escape(start)}*.part"):
        import psutil

        # Processes of other machines cannot be checked, and a live one is still writing.
        if not psutil.pid_exists(int(stale.stem.removeprefix(start))):
            stale.unlink(missing_ok=True)
    temporary = path.with_name(f"{start}{os.getpid()}.part")
    try:
        write(temporary)
        # The content must be durable before the name, or a power cut could leave an empty file under it.
        with temporary.open("rb+") as handle:
            _sync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text completely or not at all."""
    write_atomic(path, lambda p: p.write_bytes(text.encode()))


def write_plain(sink: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write tables as the row groups of one Parquet file, without compression, dictionaries or statistics.

    The size of the file then depends on the shape of the tables and on the length of their strings, never on numbers.
    """
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, version="2.6", data_page_version="1.0", **plain) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))
