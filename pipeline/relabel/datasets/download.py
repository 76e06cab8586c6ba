"""Verified transfers of files: resumable downloads, and copies from archives.

Uses urllib instead of pooch, which cannot resume a broken download.
"""

from __future__ import annotations

import gzip
import http.client
import lzma
import struct
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Progress, ProgressBar
from relabel.datasets.registry import Content, check
from relabel.store.files import write_atomic
from relabel_train.files import sha256_file

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 20
DAMAGED = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
"""Errors of incomplete archives."""
UNREADABLE = (NotImplementedError, RuntimeError, ValueError, OverflowError, IndexError, struct.error, OSError)
"""Errors of archives with invalid fields: an unknown compression, a password, an offset before the start."""

TIMEOUT = 20.0
"""Timeout of a server without response, in seconds."""
RETRIES = 4
"""Maximum number of consecutive retries without any new byte."""
PAUSE = 0.5
"""Seconds before the first retry, doubled for each further one."""


class _BrokenError(Exception):
    """A broken transfer that can be resumed."""


def download(url: str, accepted: Sequence[Content], path: Path, progress: Progress, title: str) -> None:
    """Download a URL to `path`, resuming a partial file.

    `path`: after a broken transfer, the partial file is kept for the next call. A file with wrong content is removed.
    `title`: title of the progress bar.
    """
    sizes = {c.bytes for c in accepted}
    if not path.exists() or path.stat().st_size not in sizes:
        with progress.bar(title, accepted[0].bytes, "B") as bar:
            _receive(url, sizes, path, bar)
    try:
        check(sha256_file(path), path.stat().st_size, accepted, url)
    except CheckError:
        path.unlink()
        raise


def _receive(url: str, sizes: set[int], path: Path, bar: ProgressBar) -> None:
    """Append the rest of the file, with new requests as long as they bring new bytes."""
    start = size = path.stat().st_size if path.exists() else 0
    idle = 0
    while True:
        before = size
        try:
            for at, chunk in _chunks(url, size, sizes):
                with path.open("ab" if at else "wb") as file:
                    file.write(chunk)
                size = at + len(chunk)
                bar.advance(len(chunk))
                # Stop, because the response may be endless; the check will reject the file.
                if size > max(sizes):
                    return
            return
        except _BrokenError as error:
            # Only retries without progress are limited: even an unreliable server completes the file at some point.
            idle = 0 if size > before else idle + 1
            if size == start or idle > RETRIES:
                raise MissingError(str(error), where=url) from error
            time.sleep(PAUSE * 2**idle)


def _chunks(url: str, start: int, sizes: set[int]) -> Iterator[tuple[int, bytes]]:
    """Request a file from byte `start`, and yield chunks with their positions as they arrive.

    The first position is 0 if the server does not support ranges.
    """
    # `identity`, because size and hash of a compressed response would differ from the manifest.
    headers = {"User-Agent": "relabel-itr", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={start}-"} if start else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as response:
            at = start if response.status == 206 else 0
            total = None if response.length is None else at + response.length
            # Reject an error page or a new edition by its size, before its bytes are stored.
            if total is not None and total not in sizes:
                expected = " or ".join(map(str, sorted(sizes)))
                raise CheckError(f"expected {expected} bytes, the server has {total}", where=url)
            # `read1` returns the bytes that have arrived, so a broken transfer does not lose any.
            chunk = None
            while chunk != b"":
                chunk = response.read1(CHUNK)
                yield at, chunk
                at += len(chunk)
    except urllib.error.HTTPError as error:
        # Only these errors are temporary. 416: the partial file is already complete.
        if error.code == 429 or error.code >= 500:
            raise _BrokenError(f"HTTP {error.code} {error.reason}") from error
        if error.code != 416:
            raise MissingError(f"HTTP {error.code} {error.reason}", where=url) from error
    except (OSError, http.client.HTTPException) as error:
        inner = getattr(error, "reason", error)
        raise _BrokenError(str(getattr(inner, "strerror", None) or inner or type(error).__name__)) from error
    else:
        # http.client does not report a connection that is closed early in `read1`.
        if total is not None and at < total:
            raise _BrokenError(f"the transfer ended after {at} of {total} bytes")


def copy_texts(url: str, out: Path) -> None:
    """Concatenate the texts of the Parquet files that match an fsspec pattern, such as a split on the hub."""
    try:
        import fsspec
        import pyarrow as pa
        import pyarrow.parquet as pq

        filesystem, pattern = fsspec.url_to_fs(url)
        tables = []
        for name in sorted(filesystem.glob(pattern)):
            with filesystem.open(name, "rb") as file:
                tables.append(read_texts(file))
        table = pa.concat_tables(tables)
    # Errors of file systems do not have a common base class. If no file matches, concat_tables raises.
    except Exception as error:
        raise MissingError(f"{type(error).__name__}: {error}", where=url) from error
    write_atomic(out, lambda temporary: pq.write_table(table, temporary))


def read_texts(file: Any) -> pa.Table:
    """Read a Parquet file, given as a path or an open file, without struct columns, which are images on the hub."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file)
    return opened.read([column.name for column in opened.schema_arrow if not pa.types.is_struct(column.type)])


def save(stream: IO[bytes], out: Path, accepted: Sequence[Content], where: str, bar: ProgressBar) -> None:
    """Copy a stream to a file. The file is written only if its content is accepted."""

    def write(temporary: Path) -> None:
        # Read at most one byte too many: a small archive may contain a huge file that would fill the disk.
        left = max(c.bytes for c in accepted) + 1 if all(c.sha256 for c in accepted) else sys.maxsize
        with temporary.open("wb") as handle:
            while left and (chunk := stream.read(min(left, CHUNK))):
                handle.write(chunk)
                left -= len(chunk)
                bar.advance(len(chunk))
        check(sha256_file(temporary), temporary.stat().st_size, accepted, where)

    write_atomic(out, write)


@contextmanager
def open_content(path: Path, member: str | None = None, *, gz: bool = False) -> Iterator[IO[bytes]]:
    """Open a file, a member of a zip or jar, or the content of a .gz file."""
    with ExitStack() as stack:
        try:
            if member is not None:
                stream = stack.enter_context(stack.enter_context(zipfile.ZipFile(path)).open(member))
            else:
                stream = stack.enter_context(cast("IO[bytes]", gzip.open(path)) if gz else path.open("rb"))  # noqa: SIM115
        except KeyError as error:
            raise CheckError(f"the archive has no member {member}", where=str(path)) from error
        except (*DAMAGED, *UNREADABLE) as error:
            raise CheckError(f"damaged archive ({error})", where=str(path)) from error
        try:
            yield stream
        # Damage is detected while reading. The caller does not raise these errors itself.
        except DAMAGED as error:
            raise CheckError(f"damaged archive ({error})", where=str(path)) from error
