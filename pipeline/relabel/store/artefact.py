"""An artefact: a folder of files with a manifest, built in a work folder and moved into place when whole.

The work folder lies beside the artefact (same file system) under a name made from the fingerprint, so work is
never resumed under other inputs or parameters, and a tool that deletes the artefact first (DVC does) deletes no work.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from relabel.errors import CheckError, MissingError, PartialError
from relabel.progress import SILENT, Progress
from relabel.store.atomic import make_folder, sync_folder, write_text
from relabel.store.lock import alone
from relabel.store.manifest import MANIFEST, Draft, Manifest, open_artefact, read_manifest
from relabel.store.work import DONE, Work, strays

WORK = ".work"
"""Folder beside the artefacts where they grow."""
_OLD = ".old"
_LIBRARIES = ("numpy", "pyarrow", "torch", "sentence-transformers", "faiss-cpu", "numba", "pycocoevalcap")


def build(out: Path, draft: Draft, fill: Callable[[Work], None], progress: Progress = SILENT) -> tuple[Manifest, bool]:
    """Build an artefact, or find it already built.

    Parameters
    ----------
    out : Path
        The artefact's folder; replaced only once the new one is whole.
    draft : Draft
    fill : callable
        Writes the files through the Work it gets; resumable, since finished files are kept.
    progress : Progress
        Told that another run on the same artefact is waited for.

    Returns
    -------
    manifest : Manifest
    built : bool
        False if it was there already, under the same fingerprint and with unchanged files.

    Raises
    ------
    PartialError
        On a full disk; finished files are kept for the next run.
    CheckError
        If the work folder holds what is no work on this artefact.
    """
    folder = work_folder(out, draft.fingerprint)
    try:
        with alone(out, folder.parent, progress):
            _drop_old(out)
            current = _current(out, draft.fingerprint)
            if current is not None:
                shutil.rmtree(folder, ignore_errors=True)  # a power cut may leave the old name of what was moved
                return current, False
            _salvage(out, folder, draft.fingerprint)
            manifest = _current(folder, draft.fingerprint) or _fill(folder, draft, fill)
            _move(folder, out)
            return manifest, True
    except OSError as error:
        raise disk_error(error, out) from error


def is_current(out: Path, draft: Draft) -> bool:
    """Whether an artefact is there, whole, under the fingerprint of a draft."""
    return _current(out, draft.fingerprint) is not None


def disk_error(error: OSError, out: Path) -> PartialError:
    """What an operating system error means to a user."""
    what = f"could not write: {error.strerror or error}"
    return PartialError(
        what,
        where=str(error.filename or out),
        todo="Free some space and run it again; finished files are kept.",
    )


def work_folder(out: Path, wanted: str) -> Path:
    """Where an artefact of a fingerprint grows."""
    return out.parent / WORK / f"{out.name}-{wanted[:16]}"


def _current(out: Path, wanted: str) -> Manifest | None:
    """Read the manifest of what is whole, under the wanted fingerprint, no row of it failed."""
    try:
        manifest = read_manifest(out)
        if manifest.fingerprint != wanted or manifest.failed:
            return None
        open_artefact(out, manifest.kind)
    except (OSError, MissingError, CheckError):
        return None
    shutil.rmtree(out / DONE, ignore_errors=True)  # left by a run that was killed right after its last rename
    return manifest


def _salvage(out: Path, folder: Path, wanted: str) -> None:
    """Make work of an artefact of the wanted fingerprint that is damaged or has failed rows: what is whole is kept."""
    try:
        manifest = read_manifest(out)
    except (MissingError, CheckError):
        return
    if manifest.fingerprint == wanted and not folder.exists():
        out.rename(folder)
        (folder / MANIFEST).unlink()
        Work(folder).adopt(manifest.files)


def _fill(folder: Path, draft: Draft, fill: Callable[[Work], None]) -> Manifest:
    work, started = Work(folder), time.monotonic()
    make_folder(folder / DONE)
    fill(work)
    manifest = _manifest(draft, work, time.monotonic() - started)
    for path in strays(folder, manifest):  # what killed processes left half written, or made and did not commit
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_text(folder / MANIFEST, manifest.to_json())
    return manifest


def _manifest(draft: Draft, work: Work, seconds: float) -> Manifest:
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    machine = {"python": platform.python_version(), "platform": platform.platform(), "cpus": os.cpu_count()}
    runtime = {**work.runtime, "seconds": round(seconds, 3), "libraries": versions, "machine": machine}
    return Manifest(
        draft.kind,
        draft.name,
        draft.fingerprint,
        draft.semantic,
        draft.inputs,
        work.facts,
        runtime,
        work.entries(),
    )


def _move(folder: Path, out: Path) -> None:
    old = folder.with_name(folder.name + _OLD)
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    folder.rename(out)
    sync_folder(out.parent)
    sync_folder(folder.parent)
    shutil.rmtree(out / DONE, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _drop_old(out: Path) -> None:
    """Remove what a run that was killed while it put a new artefact into place left of the one before."""
    name = re.compile(rf"{re.escape(out.name)}-[0-9a-f]{{16}}{re.escape(_OLD)}")
    for path in (out.parent / WORK).iterdir():
        if name.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
