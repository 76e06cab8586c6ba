"""Durable files with reproducible bytes: written under a temporary name, fsync, rename, fsync of the folder.

Plain Parquet files have a size that only depends on the shape of the table, so it can be computed in advance.
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
    """Return the sha256 of an input file, cached between processes.

    The file is read again if its size or modification time has changed.

    `compute`: computes a different sha256 of the content, cached under `name`.
    """
    key = f"{path.absolute()} {name}".encode(errors="surrogateescape")
    record = cache_folder("sha256") / hashlib.sha256(key).hexdigest()
    with suppress(OSError, ValueError):
        recorded, sha256 = record.read_text(encoding="ascii").rsplit(" ", 1)
        if recorded == _state(path.stat()) and len(bytes.fromhex(sha256)) == 32:
            return sha256
    started = time.time()
    # Changes through a memory map of another program (`np.memmap`) update the modification time only once until they
    # are written to the disk, so write them now. Some read-only file systems do not support fsync.
    with suppress(OSError), path.open("rb") as handle:
        os.fsync(handle.fileno())
    now = path.stat()
    sha256 = (compute or sha256_file)(path)
    # Recently written files are not cached: they may change again within one tick of the file system's clock.
    if started - max(now.st_mtime, now.st_ctime) > _SETTLED and not _is_in_memory(path):
        with suppress(OSError):
            write_text(record, f"{_state(now)} {sha256}")
    return sha256


def cache_folder(name: str) -> Path:
    """Return a folder in the user's cache. Its content can be deleted and is then computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relabel" / name


def _state(now: os.stat_result) -> str:
    return f"{now.st_size} {now.st_mtime_ns} {now.st_ctime_ns}"


def _is_in_memory(path: Path) -> bool:
    """Return whether a file is on a memory file system, where changes through a map do not update its time."""
    import psutil

    types = {mounted.mountpoint: mounted.fstype for mounted in psutil.disk_partitions(all=True)}
    return next((types.get(str(p)) for p in path.resolve().parents if p.is_mount()), "") in ("tmpfs", "ramfs")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder for a `with` block, removed at its end. Inside the block, files are written without fsync."""
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
    """Sync a folder, to make the names of its files durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and sync each of them.

    Otherwise a power cut could remove the folder of a durable file.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file completely or not at all.

    After an error, the temporary file is removed and `path` is unchanged. Temporary files of the same file that killed
    processes left are removed as well.

    `write`: writes to the given path of a temporary file in the same folder. Its result is ignored.
    """
    make_folder(path.parent)
    # The name includes host and process, so concurrent writers have different temporary files.
    start = f".{path.name}-{os.uname().nodename}-"
    for stale in path.parent.glob(f"{glob.escape(start)}*.part"):
        import psutil

        # A running process may still be writing. Processes of other hosts cannot be checked.
        if not psutil.pid_exists(int(stale.stem.removeprefix(start))):
            stale.unlink(missing_ok=True)
    temporary = path.with_name(f"{start}{os.getpid()}.part")
    try:
        write(temporary)
        # Sync the content before the rename, or a power cut could leave an empty file under the final name.
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

    The size of the file then depends only on the shape of the tables and the lengths of their strings.
    """
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, version="2.6", data_page_version="1.0", **plain) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))
