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
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from relabel.core.errors import CLOSED, CheckError, MissingError, full_disk, system_error
from relabel.core.progress import SILENT, Progress
from relabel.store.atomic import make_folder, sync_folder, write_text
from relabel.store.lock import exclusive, holder_file
from relabel.store.manifest import MANIFEST, ArtefactSpec, Manifest, open_artefact, read_manifest
from relabel.store.place import check_place
from relabel.store.workdir import DONE, Work, unexpected_files

Guard = Callable[[Manifest], None]
"""Takes the manifest of an artefact of another fingerprint before it is replaced, and raises to keep it."""
WORK = ".work"
"""Folder beside the artefacts where they grow."""
_OLD = ".old"
_LIBRARIES = ("numpy", "pyarrow", "torch", "sentence-transformers", "faiss-cpu", "numba", "pycocoevalcap")


def build(
    out: Path,
    artefact: ArtefactSpec,
    fill: Callable[[Work], None],
    progress: Progress = SILENT,
    guard: Guard | None = None,
) -> tuple[Manifest, bool]:
    """Build an artefact, or find it already built.

    Parameters
    ----------
    out : Path
        The artefact's folder; replaced only once the new one is whole.
    artefact : ArtefactSpec
    fill : callable
        Writes the files through the Work it gets; resumable, since finished files are kept.
    progress : Progress
        Told that another run on the same artefact is waited for.
    guard : Guard, optional

    Returns
    -------
    manifest : Manifest
    built : bool
        False if it was there already, under the same fingerprint and with unchanged files.

    Raises
    ------
    PartialError
        On a full disk; finished files are kept for the next run.
    UsageError
        If there can be no such path.
    CheckError
        If there is something to write and the folder may not be written, if `out` holds anything but an older
        artefact of the same kind and name (see `check_place`), or the work folder holds what is no work on this
        artefact.
    """
    folder, current = work_folder(out, artefact.fingerprint), None
    try:
        current = _current(out, artefact.fingerprint)
        if current is not None and not _leftovers(out, folder):
            return current, False
        if current is None:
            check_place(out, artefact)  # before a lock is made beside it
        with exclusive(out, folder.parent, progress):
            for old in _beside(out, _OLD):
                _remove(old)
            current = _current(out, artefact.fingerprint)
            if current is not None:
                shutil.rmtree(out / DONE, ignore_errors=True)  # left by a run that was killed after its last rename
                shutil.rmtree(folder, ignore_errors=True)  # a power cut may leave the old name of what was moved
                return current, False
            check_place(out, artefact)
            if guard is not None:
                _consult(guard, out, artefact.fingerprint)
            _reuse_files(out, folder, artefact.fingerprint)
            manifest = _current(folder, artefact.fingerprint) or _fill(folder, artefact, fill)
            check_place(out, artefact, manifest.files)
            _clean(folder, manifest.files)
            for other in _beside(out, ""):
                if other != folder:
                    _remove(other)  # unfinished work under other parameters or inputs
            _move(folder, out)
            return manifest, True
    except OSError as error:
        if current is not None and error.errno in CLOSED:
            return current, False  # what is left over stays where it cannot be removed
        raise system_error(error, out) from error


def is_current(out: Path, artefact: ArtefactSpec) -> bool:
    """Whether an artefact is there, whole, under the fingerprint of a spec."""
    return _current(out, artefact.fingerprint) is not None


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
    return manifest


def _consult(guard: Guard, out: Path, wanted: str) -> None:
    """Let a guard keep an artefact that would be replaced; one whose manifest cannot be read has nothing to keep."""
    try:
        previous = read_manifest(out)
    except (MissingError, CheckError):
        return
    if previous.fingerprint != wanted:
        guard(previous)


def _reuse_files(out: Path, folder: Path, wanted: str) -> None:
    """Make work of an artefact of the wanted fingerprint that is damaged or has failed rows; see `_take_over`."""
    try:
        manifest = read_manifest(out)
    except (MissingError, CheckError):
        return
    if manifest.fingerprint == wanted and not folder.exists() and not out.is_symlink():  # a link's target is kept
        out.rename(folder)


def _take_over(work: Work) -> None:
    """Commit the whole files of a finished artefact whose other files are made again, and read its facts."""
    with suppress(MissingError, CheckError):
        manifest = read_manifest(work.folder)
        work.previous = manifest.facts
        work.register_existing(manifest.files)


def _fill(folder: Path, artefact: ArtefactSpec, fill: Callable[[Work], None]) -> Manifest:
    work, started = Work(folder), time.monotonic()
    make_folder(folder / DONE)
    _take_over(work)
    try:
        fill(work)
    except Exception as error:
        if (full := full_disk(error)) is None:
            raise
        raise full from error
    manifest = _manifest(artefact, work, time.monotonic() - started)
    write_text(folder / MANIFEST, manifest.to_json())
    return manifest


def _manifest(artefact: ArtefactSpec, work: Work, seconds: float) -> Manifest:
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    machine = {"python": platform.python_version(), "platform": platform.platform(), "cpus": os.cpu_count()}
    runtime = {**work.runtime, "seconds": round(seconds, 3), "libraries": versions, "machine": machine}
    return Manifest(
        artefact.kind,
        artefact.name,
        artefact.fingerprint,
        artefact.semantic,
        artefact.inputs,
        work.facts,
        runtime,
        {name: entry for name, entry in work.entries().items() if name not in work.excluded},
    )


def _clean(folder: Path, files: Collection[str]) -> None:
    """Remove what is no file of the artefact: excluded files, and what killed processes wrote and did not commit."""
    found = list(unexpected_files(folder, files))
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for parent in {path.parent for path in found}:
        sync_folder(parent)  # a name that a power cut brings back would be in the artefact


def _move(folder: Path, out: Path) -> None:
    old = folder.with_name(folder.name + _OLD)
    if out.exists():
        _remove(old)
        out.rename(old)
    folder.rename(out)
    sync_folder(out.parent)
    sync_folder(folder.parent)
    shutil.rmtree(out / DONE, ignore_errors=True)
    _remove(old)


def _remove(folder: Path) -> None:
    """Remove a folder, or a link to one and not its target."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _leftovers(out: Path, folder: Path) -> bool:
    """Return whether a run that was killed left something of an artefact that is whole now."""
    named = (folder, out / DONE, holder_file(out, folder.parent))
    return any(path.exists() for path in named) or any(_beside(out, _OLD))


def _beside(out: Path, ending: str) -> Iterator[Path]:
    """List the folders of an artefact's work, of any fingerprint, whose names have an ending.

    The ending `_OLD` marks an older artefact; a process was killed while it replaced it.
    """
    name = re.compile(rf"{re.escape(out.name)}-[0-9a-f]{{16}}{re.escape(ending)}")
    with suppress(FileNotFoundError):
        yield from [path for path in (out.parent / WORK).iterdir() if name.fullmatch(path.name)]
