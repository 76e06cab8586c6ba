"""Folders of object stores and other remote file systems, opened by URL through fsspec."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relabel.core.errors import FULL, CheckError, MissingError, PartialError, RelabelError, UsageError, system_error
from relabel.core.runtime import Advance, ignore_progress

CHUNK = 1 << 22
_URL = re.compile(r"^[a-z][a-z0-9+.-]*://")
_ACCESS = ("Credential", "Forbidden", "AccessDenied", "Unauthorized", "Authentication")


def is_url(text: str) -> bool:
    """Return whether a text is the URL of a file system."""
    return _URL.match(text) is not None


@dataclass(frozen=True)
class RemoteFile:
    """Size in bytes of a remote file, and a key that changes with its content (ETag, time of change)."""

    bytes: int
    key: str


@dataclass(frozen=True)
class RemoteFolder:
    """Folder of a file system of fsspec, or a prefix of an object store, which need not exist.

    `path`: path within the file system.
    """

    url: str
    filesystem: Any
    path: str

    def below(self, name: str) -> RemoteFolder:
        """Return a folder inside this one; "" for the same."""
        return self if name in ("", ".") else RemoteFolder(f"{self.url}/{name}", self.filesystem, f"{self.path}/{name}")

    def files(self) -> dict[str, RemoteFile]:
        """Return all files below the folder by relative name, sorted."""
        with remote_errors(self.url):
            # Listings are cached, and another process may have written since.
            self.filesystem.invalidate_cache()
            listing = self.filesystem.find(self.path, detail=True)
        return self._named(listing, self.path)

    def matches(self, pattern: str) -> dict[str, RemoteFile]:
        """Return the files that match a pattern of names, by name relative to the folder, sorted."""
        with remote_errors(f"{self.url}/{pattern}"):
            self.filesystem.invalidate_cache()
            try:
                matched = self.filesystem.glob(f"{self.path}/{pattern}", detail=True)
            except ValueError as error:
                raise UsageError(str(error), where=f"{self.url}/{pattern}") from error
        return self._named(matched, self.path)

    def is_file(self) -> bool:
        """Return whether the path is a file rather than a folder."""
        with remote_errors(self.url):
            return bool(self.filesystem.isfile(self.path))

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if there is none."""
        with remote_errors(f"{self.url}/{name}"):
            try:
                return bytes(self.filesystem.cat_file(f"{self.path}/{name}"))
            except FileNotFoundError:
                return None

    def write(self, name: str, body: bytes) -> None:
        """Write a small file in one request."""
        self._make_parent(name)
        with remote_errors(f"{self.url}/{name}"):
            self.filesystem.pipe_file(f"{self.path}/{name}", body)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with remote_errors(f"{self.url}/{name}"):
            try:
                self.filesystem.rm_file(f"{self.path}/{name}")
            except FileNotFoundError:
                return

    def upload(self, source: Path, name: str, advance: Advance = ignore_progress) -> str:
        """Copy a local file to a name and return its sha256.

        An interrupted copy may leave a part of the file.
        """
        self._make_parent(name)
        digest = hashlib.sha256()
        with source.open("rb") as local, self.open(name, "wb") as remote:
            while chunk := local.read(CHUNK):
                digest.update(chunk)
                with remote_errors(f"{self.url}/{name}"):
                    remote.write(chunk)
                advance(len(chunk))
        return digest.hexdigest()

    def download(self, name: str, write: Callable[[bytes], object], advance: Advance = ignore_progress) -> None:
        """Pass the content of a file to a function in pieces of up to `CHUNK` bytes."""
        with self.open(name, "rb") as remote:
            while True:
                with remote_errors(f"{self.url}/{name}"):
                    chunk = remote.read(CHUNK)
                if not chunk:
                    return
                write(chunk)
                advance(len(chunk))

    @contextmanager
    def open(self, name: str, mode: str) -> Iterator[Any]:
        """Open a file in a `with` block, "rb" or "wb"."""
        where = f"{self.url}/{name}"
        with remote_errors(where):
            file = self.filesystem.open(f"{self.path}/{name}", mode)
        try:
            yield file
        finally:
            # Closing sends the last piece of an upload, and may fail as any request does.
            with remote_errors(where):
                file.close()

    def _make_parent(self, name: str) -> None:
        # Object stores, whose file systems are asynchronous, have no folders: for them it would make a bucket.
        if not self.filesystem.async_impl:
            with remote_errors(self.url):
                self.filesystem.makedirs(f"{self.path}/{name}".rpartition("/")[0], exist_ok=True)

    @staticmethod
    def _named(infos: dict[str, dict[str, Any]], path: str) -> dict[str, RemoteFile]:
        """Return files by name relative to a path, without folders and without markers of folders."""
        files = {}
        for key, info in sorted(infos.items()):
            name = key.removeprefix(path).strip("/")
            if info["type"] == "file" and name and not key.endswith("/"):
                # The key holds all properties, since file systems name those that change differently.
                properties = sorted((str(field), str(value)) for field, value in info.items() if field != "name")
                files[name] = RemoteFile(int(info["size"] or 0), str(properties))
        return files


def open_remote(url: str) -> RemoteFolder:
    """Open a folder by URL, as in ``s3://bucket/labels``. Nothing is read or made."""
    if not is_url(url):
        raise UsageError("not a URL", where=url, todo="Give PROTOCOL://PATH, as in s3://bucket/labels.")
    import fsspec

    try:
        filesystem, path = fsspec.url_to_fs(url)
    except ImportError as error:
        raise MissingError(str(error), where=url, todo="Install the package of this protocol with pip.") from error
    except ValueError as error:
        protocols = ", ".join(sorted(fsspec.available_protocols()))
        raise UsageError(str(error), where=url, todo=f"fsspec has the protocols {protocols}.") from error
    except Exception as error:
        # A file system may connect when it is opened.
        raise _explain(error, url) from error
    return RemoteFolder(url.rstrip("/"), filesystem, path.rstrip("/"))


@contextmanager
def remote_errors(where: str) -> Iterator[None]:
    """Turn the errors of a file system inside a `with` block into those of relabel."""
    try:
        yield
    except (RelabelError, FileNotFoundError) as error:
        if isinstance(error, RelabelError):
            raise
        raise MissingError("no such file or folder", where=where) from error
    except Exception as error:
        raise _explain(error, where) from error


def _explain(error: Exception, where: str) -> RelabelError:
    # Each file system has its own types of errors, often without a base class that could be named here.
    kind, text = type(error).__name__, " ".join(str(error).split())
    if isinstance(error, PermissionError) or any(word in f"{kind} {text}" for word in _ACCESS):
        todo = "Give credentials as this file system expects them (S3: AWS_ACCESS_KEY_ID), or check the permissions."
        return CheckError(f"no access ({kind}: {text})", where=where, todo=todo)
    if isinstance(error, OSError) and error.errno in FULL:
        return system_error(error, where)
    return PartialError(f"{kind}: {text}", where=where, todo="Run it again; complete files are kept.")
