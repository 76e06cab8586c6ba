"""Verified transfers of files: downloads that resume where they broke off, and copies out of archives.

Plain urllib: pooch, the usual library, starts a broken download again from its first byte and knows one URL per file.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import lzma
import struct
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Progress, ProgressBar
from relabel.datasets.registry import Content, check
from relabel.store.files import write_atomic

CHUNK = 1 << 20
DAMAGED = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
"""Errors of incomplete archives."""
UNREADABLE = (NotImplementedError, RuntimeError, ValueError, OverflowError, IndexError, struct.error)
"""Errors of archives with invalid fields: an unknown compression, a password, an offset before the start."""

TIMEOUT = 20.0
"""Seconds until a silent server is given up."""
RETRIES = 4
"""Retries of a broken transfer in a row that bring no new byte."""
PAUSE = 0.5
"""Seconds before the first retry; doubled for each further one."""


class SilentError(MissingError):
    """A server that cannot be reached, and need not be asked for the next file."""


class _BrokenError(Exception):
    """A broken transfer that can be resumed."""

    def __init__(self, reason: str, *, silent: bool = False) -> None:
        super().__init__(reason)
        self.silent = silent


class _Part:
    """A growing file and the sha256 of its bytes so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.digest, self.shown = path, 0, hashlib.sha256(), 0
        # The hash of a partial file cannot be stored with it: after a kill it may be older than the bytes.
        if path.exists():
            with path.open("rb") as handle:
                while chunk := handle.read(CHUNK):
                    self._count(chunk)

    def append(self, handle: IO[bytes], chunk: bytes) -> None:
        handle.write(chunk)
        self._count(chunk)

    def restart(self) -> None:
        self.path.unlink(missing_ok=True)
        self.size, self.digest = 0, hashlib.sha256()

    def show(self, bar: ProgressBar) -> None:
        """Advance the bar to the size of the file; a bar never goes back."""
        bar.advance(max(0, self.size - self.shown))
        self.shown = max(self.size, self.shown)

    def _count(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.digest.update(chunk)


def download(url: str, accepted: Sequence[Content], path: Path, progress: Progress, title: str) -> None:
    """Download into `path`, resuming a partial file.

    `path`: a partial file stays after a broken transfer, for the next call. A file of wrong content is removed.
    `title`: title of the progress bar.
    """
    part = _Part(path)
    if _right(part, accepted):
        return
    # A file of full size with a wrong hash cannot be completed, only replaced.
    resumed = 0 < part.size < max(c.bytes for c in accepted)
    if not resumed:
        part.restart()
    try:
        _receive(url, part, accepted, progress, title)
        # The resumed part may have been of another file, so a wrong result is downloaded once more in full.
        if resumed and not _right(part, accepted):
            part.restart()
            _receive(url, part, accepted, progress, title)
        # The hash was computed as the bytes arrived, so the check reads nothing again.
        check(part.digest.hexdigest(), part.size, accepted, url)
    except CheckError:
        part.restart()
        raise


def _right(part: _Part, accepted: Sequence[Content]) -> bool:
    return any((c.bytes, c.sha256) == (part.size, part.digest.hexdigest()) for c in accepted)


def _receive(url: str, part: _Part, accepted: Sequence[Content], progress: Progress, title: str) -> None:
    """Request the rest of the file, again as long as new bytes arrive."""
    start, idle, part.shown = part.size, 0, 0
    with progress.bar(title, accepted[0].bytes, "B") as bar:
        while True:
            before = part.size
            try:
                return _request(url, part, accepted, bar)
            except _BrokenError as error:
                # Retries are limited only while no byte arrives: a server that breaks off often still finishes.
                idle = 0 if part.size > before else idle + 1
                # A host that never answered need not be tried for other files.
                if part.size == start and error.silent:
                    raise SilentError(str(error), where=urlsplit(url).netloc) from error
                if part.size == start or idle > RETRIES:
                    raise MissingError(str(error), where=url) from error
                time.sleep(PAUSE * 2**idle)


def _request(url: str, part: _Part, accepted: Sequence[Content], bar: ProgressBar) -> None:
    """Make one request and append its response."""
    # `identity`: a compressed response has another length and other bytes than the manifest.
    headers = {"User-Agent": "relabel-itr", "Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            # 416: the partial file is longer than the complete one.
            if error.code == 416:
                part.restart()
            # The server may serve these later; any other refusal is final.
            if error.code in (416, 429) or error.code >= 500:
                raise _BrokenError(f"HTTP {error.code} {error.reason}") from error
            raise MissingError(f"HTTP {error.code} {error.reason}", where=url) from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(_reason(error), silent=True) from error
    with response:
        total = _total(response, part)
        # An error page or a new edition has another size, and is refused before its bytes are stored.
        if total is not None and total not in {c.bytes for c in accepted}:
            sizes = " or ".join(str(c.bytes) for c in accepted)
            raise CheckError(f"expected {sizes} bytes, the server has {total}", where=url)
        _append_response(response, part, max(c.bytes for c in accepted), bar)
    # http.client reports no error where a connection closes early in `read1`.
    if total is not None and part.size < total:
        raise _BrokenError(f"the transfer ended after {part.size} of {total} bytes")


def _append_response(response: http.client.HTTPResponse, part: _Part, limit: int, bar: ProgressBar) -> None:
    """Append the response; stops past `limit` bytes."""
    with part.path.open("ab") as handle:
        while part.size <= limit:
            part.show(bar)
            try:
                # `read1` returns the bytes that have arrived, so a broken transfer loses none of them.
                chunk = response.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _BrokenError(_reason(error)) from error
            if not chunk:
                return
            part.append(handle, chunk)


def _total(response: http.client.HTTPResponse, part: _Part) -> int | None:
    """Return the size of the complete file by the server; drops the partial file if the server starts over."""
    if response.status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        # Bytes of another range would be appended at the wrong place.
        if span.partition("-")[0] != str(part.size):
            part.restart()
            raise _BrokenError("the server sent another range than was asked for")
        return int(total) if total.isdecimal() else None
    # Status 200: the server does not serve ranges, and sends the file from its first byte.
    if part.size:
        part.restart()
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner or type(error).__name__)


def save(stream: IO[bytes], out: Path, accepted: Sequence[Content], where: str, bar: ProgressBar) -> None:
    """Copy a stream into a file while hashing it; the file is written with accepted content or not at all."""
    limit = max(c.bytes for c in accepted)

    def write(temporary: Path) -> None:
        digest, size = hashlib.sha256(), 0
        with temporary.open("wb") as handle:
            while chunk := stream.read(CHUNK):
                size += len(chunk)
                # Checked before the write, so that a small archive of a huge file cannot fill the disk.
                if size > limit:
                    raise CheckError(f"expected {limit} bytes at most, found more", where=where)
                digest.update(chunk)
                handle.write(chunk)
                bar.advance(len(chunk))
        check(digest.hexdigest(), size, accepted, where)

    write_atomic(out, write)


@contextmanager
def open_content(path: Path, member: str | None = None, *, gz: bool = False) -> Iterator[IO[bytes]]:
    """Open a file, a member of an archive (zip, jar, tar), or the content of a .gz."""
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(_open(path, member, gz, stack))
        except (*DAMAGED, *UNREADABLE) as error:
            raise CheckError(f"not a whole archive ({error})", where=str(path)) from error
        except OSError as error:
            raise MissingError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
        # Outside the `try`: errors of the caller are not those of the archive, and damage is found while reading.
        yield cast("IO[bytes]", _CheckedStream(stream, str(path)))


class _CheckedStream(RawIOBase):
    """Stream of an archive that raises CheckError where the archive is damaged."""

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self.stream, self.where = stream, where

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self.stream.read(len(buffer))
        except (*DAMAGED, *UNREADABLE) as error:
            raise CheckError(f"not a whole archive ({error})", where=self.where) from error
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _open(path: Path, member: str | None, gz: bool, stack: ExitStack) -> IO[bytes]:
    if member is None:
        return cast("IO[bytes]", gzip.open(path)) if gz else path.open("rb")
    try:
        # By content: a download ends in `.part`, whatever it holds.
        if zipfile.is_zipfile(path):
            return stack.enter_context(zipfile.ZipFile(path)).open(member)
        archive = stack.enter_context(tarfile.open(path))  # noqa: SIM115
        stream = archive.extractfile(member)
    except KeyError:
        stream = None
    # tarfile returns None for a folder and raises KeyError for a member that is not there.
    if stream is None:
        raise CheckError(f"the archive has no member {member}", where=str(path))
    return stream
