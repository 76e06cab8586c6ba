"""Download one file: verified while it arrives, resumed where it broke off, over plain urllib."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from relabel.datasets.content import CHUNK, check
from relabel.datasets.manifest import Content
from relabel.errors import CheckError, MissingError
from relabel.progress import Progress, Task

TIMEOUT = 20.0
"""Seconds a server may stay silent."""
RETRIES = 4
"""How often in a row a broken transfer is taken up again without a single new byte."""
PAUSE = 0.5
"""Seconds before the first of them; doubled each time."""


class SilentError(MissingError):
    """A server that cannot be reached: no use asking it for the next file."""


class _BrokenError(Exception):
    """A transfer that may go on where it stopped."""

    def __init__(self, reason: str, *, silent: bool = False) -> None:
        super().__init__(reason)
        self.silent = silent


class _Part:
    """A file that grows and the sha256 of what it holds so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.digest, self.shown = path, 0, hashlib.sha256(), 0
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

    def show(self, task: Task) -> None:
        """Move the bar to where the file is; a bar never goes back."""
        task.advance(max(0, self.size - self.shown))
        self.shown = max(self.size, self.shown)

    def _count(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.digest.update(chunk)


def download(url: str, accepted: Sequence[Content], path: Path, progress: Progress, title: str) -> None:
    """Download into `path`, going on from what is there.

    Parameters
    ----------
    url : str
    accepted : sequence of Content
        What the file may be.
    path : Path
        Where it grows. After a broken transfer it stays, for the next call; after a wrong content it is removed.
    progress : Progress
    title : str
        What the progress bar says.

    Raises
    ------
    MissingError
        If the server has no such file or broke off too often; SilentError if it cannot be reached.
    CheckError
        If the file is not one of the accepted.
    OSError
        If the disk takes no more.
    """
    part = _Part(path)
    if _right(part, accepted):
        return
    resumed = 0 < part.size < max(c.bytes for c in accepted)
    if not resumed:
        part.restart()
    try:
        _receive(url, part, accepted, progress, title)
        if resumed and not _right(part, accepted):  # the first half may have been of another file
            part.restart()
            _receive(url, part, accepted, progress, title)
        check(part.digest.hexdigest(), part.size, accepted, url)
    except CheckError:
        part.restart()
        raise


def _right(part: _Part, accepted: Sequence[Content]) -> bool:
    return any((c.bytes, c.sha256) == (part.size, part.digest.hexdigest()) for c in accepted)


def _receive(url: str, part: _Part, accepted: Sequence[Content], progress: Progress, title: str) -> None:
    """Request the rest until all is there, as long as bytes keep coming."""
    start, idle, part.shown = part.size, 0, 0
    with progress.task(title, accepted[0].bytes, "B") as task:
        while True:
            before = part.size
            try:
                return _request(url, part, accepted, task)
            except _BrokenError as error:
                idle = 0 if part.size > before else idle + 1
                if part.size == start and error.silent:
                    raise SilentError(str(error), where=urlsplit(url).netloc) from error
                if part.size == start or idle > RETRIES:
                    raise MissingError(str(error), where=url) from error
                time.sleep(PAUSE * 2**idle)


def _request(url: str, part: _Part, accepted: Sequence[Content], task: Task) -> None:
    """Make one request and take what it gives."""
    headers = {"User-Agent": "relabel-itr", "Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # what is there is longer than the file
                part.restart()
            if error.code in (416, 429) or error.code >= 500:
                raise _BrokenError(f"HTTP {error.code} {error.reason}") from error
            raise MissingError(f"HTTP {error.code} {error.reason}", where=url) from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(_reason(error), silent=True) from error
    with response:
        total = _total(response, part)
        if total is not None and total not in {c.bytes for c in accepted}:
            sizes = " or ".join(str(c.bytes) for c in accepted)
            raise CheckError(f"expected {sizes} bytes, the server has {total}", where=url)
        _take(response, part, max(c.bytes for c in accepted), task)
    if total is not None and part.size < total:
        raise _BrokenError(f"the transfer ended after {part.size} of {total} bytes")


def _take(response: http.client.HTTPResponse, part: _Part, limit: int, task: Task) -> None:
    """Append what the response holds; stops past `limit` bytes."""
    with part.path.open("ab") as handle:
        while part.size <= limit:
            part.show(task)
            try:
                chunk = response.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _BrokenError(_reason(error)) from error
            if not chunk:
                return
            part.append(handle, chunk)


def _total(response: http.client.HTTPResponse, part: _Part) -> int | None:
    """Size of the whole file as the server says; drops what is there if the server starts over."""
    if response.status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if span.partition("-")[0] != str(part.size):
            part.restart()
            raise _BrokenError("the server sent another range than was asked for")
        return int(total) if total.isdecimal() else None
    if part.size:
        part.restart()
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner or type(error).__name__)
