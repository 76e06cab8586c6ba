"""Bytes that are what the manifest says, or an error; and archives read one member at a time."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from relabel.datasets.manifest import Content
from relabel.errors import CheckError, MissingError
from relabel.progress import Task
from relabel.store.atomic import sha256_file, write_atomic

CHUNK = 1 << 20
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


def check(sha256: str, size: int, accepted: Sequence[Content], where: str) -> None:
    """Raise CheckError unless some accepted content has this sha256 and size."""
    if not any(c.sha256 == sha256 and c.bytes == size for c in accepted):
        expected = " or ".join(f"sha256 {c.sha256} ({c.bytes} bytes)" for c in accepted)
        raise CheckError(f"expected {expected}, found sha256 {sha256} ({size} bytes)", where=where)


def check_file(path: Path, accepted: Sequence[Content]) -> Path:
    """Hash a file and return its path; raises as `check`, and OSError if it cannot be read."""
    check(sha256_file(path), path.stat().st_size, accepted, str(path))
    return path


def save(stream: IO[bytes], out: Path, accepted: Sequence[Content], where: str, task: Task) -> None:
    """Copy a stream into a file, hashing on the way; the file is there whole and right, or not at all.

    Raises
    ------
    CheckError
        If the content is not accepted; reading stops at the first byte too many.
    """
    limit = max(c.bytes for c in accepted)

    def write(temporary: Path) -> None:
        digest, size = hashlib.sha256(), 0
        with temporary.open("wb") as handle:
            while chunk := stream.read(CHUNK):
                size += len(chunk)
                if size > limit:
                    raise CheckError(f"expected {limit} bytes at most, found more", where=where)
                digest.update(chunk)
                handle.write(chunk)
                task.advance(len(chunk))
        check(digest.hexdigest(), size, accepted, where)

    write_atomic(out, write)


@contextmanager
def open_content(path: Path, member: str | None = None, *, gz: bool = False) -> Iterator[IO[bytes]]:
    """Open a file, a member of it (zip, jar, tar), or what it holds (gz).

    Raises
    ------
    CheckError
        If the archive is damaged or lacks the member.
    MissingError
        If the file cannot be opened.
    """
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(_open(path, member, gz, stack))
        except _DAMAGED as error:
            raise CheckError(f"not a whole archive ({error})", where=str(path)) from error
        except OSError as error:
            raise MissingError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
        try:
            yield stream
        except _DAMAGED as error:
            raise CheckError(f"not a whole archive ({error})", where=str(path)) from error


def _open(path: Path, member: str | None, gz: bool, stack: ExitStack) -> IO[bytes]:
    if member is None:
        return cast(IO[bytes], gzip.open(path)) if gz else path.open("rb")
    try:
        if zipfile.is_zipfile(path):
            return stack.enter_context(zipfile.ZipFile(path)).open(member)
        archive = stack.enter_context(tarfile.open(path))  # noqa: SIM115
        found = archive.extractfile(member)
    except KeyError:
        found = None
    if found is None:
        raise CheckError(f"the archive has no member {member}", where=str(path))
    return found
