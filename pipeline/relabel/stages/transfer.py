"""push and pull: artefacts copied to and from object stores and other remote file systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Runtime
from relabel.store.artefact import WORK
from relabel.store.manifest import MANIFEST, Manifest
from relabel.store.remote import open_remote
from relabel.store.transfer import download_artefact, missing_artefact, upload_artefact
from relabel.store.workdir import DONE


@dataclass(frozen=True)
class Transfer:
    """Copy of one artefact.

    `copied`: False if the artefact was at its target.
    `target`: folder or URL.
    """

    manifest: Manifest
    copied: bool
    target: str

    def summary(self) -> dict[str, object]:
        """Return the transfer as plain values."""
        about = {"kind": self.manifest.kind, "name": self.manifest.name, "fingerprint": self.manifest.fingerprint}
        return about | {
            "files": len(self.manifest.files),
            "bytes": self.manifest.bytes,
            "copied": self.copied,
            "target": self.target,
        }

    def describe(self) -> str:
        """Return the transfer as one line."""
        copied = f"{len(self.manifest.files):,} files, {self.manifest.bytes / 1e6:,.1f} MB copied"
        state = copied if self.copied else "up to date"
        return f"{self.manifest.kind} {self.manifest.name}: {state} ({self.target})"


def push(folder: Path, url: str, runtime: Runtime) -> Iterator[Transfer]:
    """Copy an artefact, or all artefacts below a folder, to a URL of fsspec. Each one is complete before the next.

    `url`: target of the folder.
    """
    remote, names = open_remote(url), _local_artefacts(folder)
    if not names:
        raise MissingError("no artefact in this folder", where=str(folder), todo="Name a folder of labels or below it.")
    for name in names:
        target = remote.below(name)
        result = upload_artefact(folder / name, target, replace=runtime.replace, progress=runtime.progress)
        yield Transfer(*result, target.url)


def pull(url: str, folder: Path, runtime: Runtime) -> Iterator[Transfer]:
    """Copy an artefact, or all artefacts below a URL of fsspec, to a folder. Each one is complete before the next.

    `folder`: target of the URL.
    """
    remote = open_remote(url)
    manifests = [PurePosixPath(name) for name in remote.files()]
    names = [path.parent for path in manifests if path.name == MANIFEST and WORK not in path.parts]
    names = [name for name in names if name.name != DONE]
    if not names:
        raise missing_artefact(remote)
    for name in names:
        # A key of an object store may contain any text.
        if ".." in name.parts:
            raise CheckError("a name that leads out of its folder", where=f"{url}/{name}", todo="Rename the folder.")
        out = folder / name
        result = download_artefact(
            remote.below(name.as_posix()), out, replace=runtime.replace, progress=runtime.progress
        )
        yield Transfer(*result, str(out))


def _local_artefacts(folder: Path) -> list[str]:
    """Return the artefacts below a folder by relative name, sorted; "." for the folder itself."""
    names = []
    for path, folders, files in os.walk(folder, followlinks=True):
        if MANIFEST in files:
            names.append(Path(path).relative_to(folder).as_posix())
            folders.clear()
        # Unfinished work is of use on this machine only.
        folders[:] = sorted(name for name in folders if name != WORK)
    return sorted(names)
