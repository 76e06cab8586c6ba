"""Copies of artefacts between local folders and remote ones.

Object stores have neither renames nor fsync. An uploaded artefact is therefore complete when its manifest exists, which
is written last. Until then, `.done` beside the files holds the manifest to come and a record of each complete file, and
an interrupted upload resumes from these. A download is built like any artefact: in a work folder, file by file, and
moved into place when all files agree with the manifest.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import SILENT, Advance, Progress
from relabel.store.artefact import build
from relabel.store.manifest import (
    MANIFEST,
    ArtefactSpec,
    FileEntry,
    Manifest,
    open_artefact,
    parse_manifest,
    read_manifest,
)
from relabel.store.remote import RemoteFile, RemoteFolder
from relabel.store.workdir import DONE, Work

_PLAN = f"{DONE}/{MANIFEST}"


def upload_artefact(
    folder: Path, remote: RemoteFolder, *, replace: bool = False, progress: Progress = SILENT
) -> tuple[Manifest, bool]:
    """Copy an artefact to a remote folder, and resume an interrupted copy.

    `replace`: whether another build of the same artefact may be replaced. Returns `copied`: False if the artefact was
    there.
    """
    manifest = open_artefact(folder, read_manifest(folder).kind, verify=False)
    text, files = manifest.to_json(), remote.files()
    planned = _read_interrupted(remote, _PLAN) if _PLAN in files else None
    current = (_read_interrupted if _PLAN in files else _read)(remote, MANIFEST) if MANIFEST in files else None
    complete = _complete(remote, files, manifest, current)
    copied = len(complete) < len(manifest.files) or current is None or current.to_json() != text
    if copied:
        _check_remote(remote, files, manifest, current, planned, replace)
        for previous in (current, planned):
            # While the older manifest or plan names them: an interrupted run still knows these files as relabel's.
            for name in (previous.files if previous else {}).keys() & files.keys() - manifest.files.keys():
                remote.remove(name)
        remote.write(_PLAN, text.encode())
        if current is not None:
            # Without the current manifest, which is removed next, only records state which files are complete.
            for name in complete:
                remote.write(_record(name), manifest.files[name].to_json().encode())
        # From here on, no reader takes the files for a complete artefact.
        remote.remove(MANIFEST)
        with progress.bar(f"push {manifest.kind} {manifest.name}", manifest.bytes, "bytes") as bar:
            for name, entry in manifest.files.items():
                if name in complete:
                    bar.advance(entry.bytes)
                else:
                    # The record of another build must not outlive the file that it describes.
                    remote.remove(_record(name))
                    _upload(folder, remote, name, entry, bar.advance)
                    remote.write(_record(name), entry.to_json().encode())
        remote.write(MANIFEST, text.encode())
        files = remote.files()
    for name in files:
        if name.startswith(f"{DONE}/"):
            remote.remove(name)
    return manifest, copied


def download_artefact(
    remote: RemoteFolder, out: Path, *, replace: bool = False, progress: Progress = SILENT
) -> tuple[Manifest, bool]:
    """Copy an artefact from a remote folder, compare every file with its sha256, and resume an interrupted copy.

    `out`: local folder. `replace`: whether another build of the same artefact may be replaced. Returns `copied`: False
    if the artefact was there.
    """
    manifest = _read(remote, MANIFEST)
    if manifest is None:
        raise missing_artefact(remote)
    artefact = ArtefactSpec(manifest.kind, manifest.name, manifest.semantic, manifest.inputs)

    def fill(work: Work) -> None:
        # The artefact keeps the versions, times and machine of the run that made it.
        work.manifest = manifest
        with progress.bar(f"pull {manifest.kind} {manifest.name}", manifest.bytes, "bytes") as bar:
            for name, entry in manifest.files.items():
                if work.done(name):
                    bar.advance(entry.bytes)
                work.file(name, partial(_download, remote, name, entry, bar.advance), rows=entry.rows)

    def guard(previous: Manifest) -> None:
        if not replace:
            raise _other_build(previous, str(out))

    return build(out, artefact, fill, progress, guard)


def missing_artefact(remote: RemoteFolder) -> MissingError:
    """Return the error for a remote folder without an artefact, which may be one whose upload is not complete."""
    if remote.read(_PLAN) is None:
        return MissingError("no artefact here", where=remote.url, todo="Check the URL.")
    todo = "Push it again from the folder where the upload was started."
    return MissingError("an artefact whose upload is not complete", where=remote.url, todo=todo)


def _upload(folder: Path, remote: RemoteFolder, name: str, entry: FileEntry, advance: Advance) -> None:
    """Copy a file and compare it with its entry, so that damage or a newer build is not spread."""
    sha256 = remote.upload(folder / name, name, advance)
    if sha256 != entry.sha256:
        problem = f"expected sha256 {entry.sha256}, found {sha256}"
        todo = f"Check it with `relabel verify {folder}`, or run this again if another run has rebuilt it."
        raise CheckError(problem, where=str(folder / name), todo=todo)


def _download(remote: RemoteFolder, name: str, entry: FileEntry, advance: Advance, path: Path) -> None:
    """Copy a file and compare it with its entry; the caller removes the file after an error."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:

        def write(chunk: bytes) -> None:
            nonlocal size
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)

        remote.download(name, write, advance)
    if (digest.hexdigest(), size) != (entry.sha256, entry.bytes):
        problem = f"expected sha256 {entry.sha256} ({entry.bytes} bytes), found {digest.hexdigest()} ({size} bytes)"
        todo = "Push it again, or run this again if another machine is pushing to this folder."
        raise CheckError(problem, where=f"{remote.url}/{name}", todo=todo)


def _read(remote: RemoteFolder, name: str) -> Manifest | None:
    """Read a manifest; None if there is none."""
    body = remote.read(name)
    return None if body is None else parse_manifest(body, f"{remote.url}/{name}", "Push it again.")


def _read_interrupted(remote: RemoteFolder, name: str) -> Manifest | None:
    """Read the manifest or plan of an interrupted upload; None if it was not written to its end.

    Object stores write a file completely or not at all, but a full disk behind another file system does not.
    """
    try:
        return _read(remote, name)
    except CheckError:
        return None


def _complete(
    remote: RemoteFolder, files: dict[str, RemoteFile], manifest: Manifest, current: Manifest | None
) -> set[str]:
    """Return the files of an artefact that are complete in the remote folder."""
    complete = set()
    for name, entry in manifest.files.items():
        if name not in files or files[name].bytes != entry.bytes:
            continue
        recorded = current.files.get(name) == entry if current is not None else False
        if recorded or (_record(name) in files and remote.read(_record(name)) == entry.to_json().encode()):
            complete.add(name)
    return complete


def _check_remote(
    remote: RemoteFolder,
    files: dict[str, RemoteFile],
    manifest: Manifest,
    current: Manifest | None,
    planned: Manifest | None,
    replace: bool,
) -> None:
    """Raise if the remote folder holds anything but a build of the same artefact, complete or not."""
    for previous in (current, planned):
        if previous is None:
            continue
        if (previous.kind, previous.name) != (manifest.kind, manifest.name):
            message = f"found {previous.kind} {previous.name}, where {manifest.kind} {manifest.name} would be written"
            raise CheckError(message, where=remote.url, todo="Give another URL.")
        if previous is current and previous.fingerprint != manifest.fingerprint and not replace:
            raise _other_build(previous, remote.url)
    written = {MANIFEST, *(current.files if current else ()), *(planned.files if planned else ())}
    # A plan is written when all files that it does not name are removed, so these files are known without its content.
    written |= set(manifest.files) if _PLAN in files or current else set()
    foreign = [name for name in files if name not in written and not name.startswith(f"{DONE}/")]
    if foreign:
        message = f"found {foreign[0]}, which is no file of an artefact"
        raise CheckError(message, where=remote.url, todo="Give another URL, or move the file away.")


def _other_build(previous: Manifest, where: str) -> UsageError:
    message = f"{previous.kind} {previous.name} was made from other inputs or parameters, and would be replaced"
    return UsageError(message, where=where, todo="Replace it with --replace, or name another folder.")


def _record(name: str) -> str:
    return f"{DONE}/{name}.json"
