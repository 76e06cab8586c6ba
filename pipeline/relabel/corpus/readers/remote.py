"""Local copies of captions that lie on a remote file system. Of tar files, only the members with captions are copied.

Captions are hashed before they are read, so that a file is read twice. A copy makes both passes over the same bytes,
and a second run over the same files transfers nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path, PurePosixPath
from typing import Any

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import SILENT, Progress
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.formats import ENDINGS
from relabel.corpus.readers.webdataset import copy_captions
from relabel.store.files import write_atomic, write_text
from relabel.store.remote import RemoteFile, RemoteFolder, open_remote, remote_errors

_KEYS = ".copied"
"""Folder of the keys of remote files, by which a copy is recognised as current."""
_OTHERS = (".json", ".json.gz", ".txt")
"""Endings of the files of COCO, Karpathy and SCAN, and of the state of a saved dataset."""


def fetch_captions(params: IngestParams, data: Path, progress: Progress = SILENT) -> Path:
    """Copy the captions that `params.url` names into the folder of fetched files; return their local path.

    Files that were copied before and have not changed since are kept, so that an interrupted copy resumes.

    `data`: folder of fetched files. Returns Path: a file if the URL names a file, else a folder.
    """
    assert params.url is not None
    root, files = _matches(params)
    folder = data / "remote" / hashlib.sha256(params.url.encode()).hexdigest()[:16]
    wanted = {"members": sorted({"txt", "json", params.text_column or "txt"})}
    with progress.bar(f"copy {params.url}", len(files), "files") as bar:
        for name, file in files.items():
            # A name of the object store must not lead out of the folder.
            if ".." in PurePosixPath(name).parts:
                raise CheckError("a name that leads out of its folder", where=f"{root.url}/{name}", todo="Rename it.")
            key, record = json.dumps([file.key, wanted if _is_tar(name) else None]), folder / _KEYS / f"{name}.json"
            if not (folder / name).is_file() or not record.is_file() or record.read_text(encoding="utf-8") != key:
                # A file without a record counts as not copied.
                record.unlink(missing_ok=True)
                write_atomic(folder / name, lambda path, name=name: _copy(root, name, params, path))  # type: ignore[misc]
                write_text(record, key)
            bar.advance(1)
    # Files that were removed there since the last copy are no captions of this URL any more.
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(f"{_KEYS}/") and name not in files:
            path.unlink()
    single = len(files) == 1 and root.below(next(iter(files))).url == params.url
    return folder / next(iter(files)) if single else folder


def _matches(params: IngestParams) -> tuple[RemoteFolder, dict[str, RemoteFile]]:
    """Return the folder that a URL names, and the files of captions by name relative to it."""
    assert params.url is not None
    parts = params.url.split("/")
    # The names of files below the first pattern may tell their splits.
    first = next((i for i, part in enumerate(parts) if i > 2 and set("*?[") & set(part)), None)
    if first is not None:
        root = open_remote("/".join(parts[:first]))
        files = root.matches("/".join(parts[first:]))
    elif (remote := open_remote(params.url)).is_file():
        root = open_remote(params.url.rpartition("/")[0])
        files = root.matches(params.url.rpartition("/")[2])
    else:
        root, files = remote, _captions(remote.files(), params)
    if not files:
        raise MissingError("no file of captions here", where=params.url, todo="Check the URL, or give a pattern.")
    return root, files


def _captions(files: dict[str, RemoteFile], params: IngestParams) -> dict[str, RemoteFile]:
    """Return the files of a folder that may hold captions of the format."""
    name = "parquet" if params.format == "img2dataset" else params.format
    endings = (*ENDINGS[name], *_OTHERS) if name in ENDINGS else (*sum(ENDINGS.values(), ()), *_OTHERS)
    # img2dataset writes tar files of images beside its metadata.
    if name is None and any(file.endswith(".parquet") for file in files):
        endings = tuple(ending for ending in endings if ending not in ENDINGS["webdataset"])
    return {
        file: about
        for file, about in files.items()
        if file.lower().endswith(endings) and not any(part.startswith((".", "_")) for part in file.split("/"))
    }


def _is_tar(name: str) -> bool:
    return name.lower().endswith(ENDINGS["webdataset"])


def _copy(root: RemoteFolder, name: str, params: IngestParams, path: Path) -> None:
    """Copy one file, or the members of a tar file that hold captions."""
    if _is_tar(name):
        where = f"{root.url}/{name}"
        with root.open(name, "rb") as file:
            copy_captions(_RemoteStream(file, where), path, params.text_column, where)
        return
    with path.open("wb") as copy:
        root.download(name, copy.write)


class _RemoteStream(io.RawIOBase):
    """Stream whose errors are those of relabel: a lost connection must not pass for a damaged file."""

    def __init__(self, file: Any, where: str) -> None:
        self._file, self._where = file, where

    def read(self, size: int = -1) -> bytes:
        with remote_errors(self._where):
            return bytes(self._file.read(size))
