"""Artefacts: folders of files with a manifest, built in a work folder and moved into place when complete.

The work folder lies beside the artefact, on the same file system, so that a rename moves it. Its name contains the
fingerprint, so that work is never resumed under other inputs or parameters. A tool that deletes the artefact before a
run, as DVC does, deletes no work.

A lock admits one run at a time to an artefact. A second run waits and names the process that holds the lock. The
kernel's lock (flock) ends with the process that holds it, even if that process is killed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

from relabel.core.errors import CLOSED, CheckError, MissingError, full_disk, system_error
from relabel.core.runtime import SILENT, Progress
from relabel.store.files import make_folder, sync_folder, write_text
from relabel.store.manifest import MANIFEST, ArtefactSpec, Manifest, open_artefact, read_manifest
from relabel.store.workdir import DONE, Work, check_place, unexpected_files

Guard = Callable[[Manifest], None]
"""Callback that takes the manifest of an artefact of another fingerprint, and may raise to prevent its replacement."""
WORK = ".work"
"""Name of the folder beside the artefacts that holds their work folders."""
_OLD = ".old"
_LIBRARIES = ("numpy", "pyarrow", "torch", "sentence-transformers", "faiss-cpu", "faiss-gpu", "numba", "pycocoevalcap")
_PATIENCE = 1.0  # seconds of waiting before a note is shown
_SECONDS = "seconds"  # file beside the records of a work folder


@contextmanager
def exclusive(out: Path, folder: Path, progress: Progress = SILENT) -> Iterator[None]:
    """Hold the lock of an artefact inside a `with` block.

    `out`: folder of the artefact. `folder`: folder of the lock file, beside the work folders. `progress`: shows a note
    while another run is waited for.
    """
    from filelock import FileLock, Timeout

    make_folder(folder)
    lock, holder = FileLock(folder / f"{out.name}.lock"), holder_file(out, folder)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        progress.note(f"waiting for another run on {out}{_pid(holder)}")
        lock.acquire()
    # The name of the holder is only for the note of a waiting run. It plays no part in the lock.
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def holder_file(out: Path, folder: Path) -> Path:
    """Return the file with the id of the process that holds the lock of an artefact. A killed process leaves it."""
    return folder / f"{out.name}.pid"


def _pid(holder: Path) -> str:
    """Return the id of the holder as a clause for the note; empty if it is not known."""
    try:
        return f" (pid {int(holder.read_text())})"
    except (OSError, ValueError):
        return ""


def build(
    out: Path,
    artefact: ArtefactSpec,
    fill: Callable[[Work], None],
    progress: Progress = SILENT,
    guard: Guard | None = None,
) -> tuple[Manifest, bool]:
    """Build an artefact unless it exists already.

    `out`: folder of the artefact. It is replaced only when the new artefact is complete. `fill`: writes the files
    through a `Work`. A later call resumes, since finished files are kept. `progress`: shows a note while another run on
    the same artefact is waited for. Returns `built`: False if the artefact existed already with the same fingerprint
    and unchanged files.
    """
    folder, current = work_folder(out, artefact.fingerprint), None
    try:
        # A complete artefact needs no lock, so that readers of a read-only folder never write.
        current = _current(out, artefact.fingerprint)
        if current is not None and not _leftovers(out, folder):
            return current, False
        if current is None:
            # A refused folder must stay untouched, so this comes before a lock file is made beside it.
            check_place(out, artefact)
        with exclusive(out, folder.parent, progress):
            for old in _beside(out, _OLD):
                _remove(old)
            # Another run may have built the artefact while this one waited for the lock.
            current = _current(out, artefact.fingerprint)
            if current is not None:
                # Records stay behind when a run is killed after its last rename.
                shutil.rmtree(out / DONE, ignore_errors=True)
                # A power cut may bring back the old name of the folder that was moved.
                shutil.rmtree(folder, ignore_errors=True)
                return current, False
            check_place(out, artefact)
            if guard is not None:
                _consult(guard, out, artefact.fingerprint)
            _reuse_files(out, folder, artefact.fingerprint)
            # A work folder with a manifest is complete: the run that filled it was killed before it was moved.
            manifest = _current(folder, artefact.fingerprint) or _fill(folder, artefact, fill)
            # The work may have taken hours, and `out` may hold other files by now.
            check_place(out, artefact, manifest.files)
            _clean(folder, manifest.files)
            # Unfinished work under other parameters or inputs is given up.
            for other in _beside(out, ""):
                if other != folder:
                    _remove(other)
            _move(folder, out)
            return manifest, True
    except OSError as error:
        # The artefact is complete. Leftovers stay where they cannot be removed.
        if current is not None and error.errno in CLOSED:
            return current, False
        raise system_error(error, out) from error


def is_current(out: Path, artefact: ArtefactSpec) -> bool:
    """Return whether `out` holds the complete artefact of a spec."""
    return _current(out, artefact.fingerprint) is not None


def work_folder(out: Path, wanted: str) -> Path:
    """Return the work folder of an artefact with the fingerprint `wanted`."""
    return out.parent / WORK / f"{out.name}-{wanted[:16]}"


def _current(out: Path, wanted: str) -> Manifest | None:
    """Return the manifest of a complete artefact with the wanted fingerprint and no failed rows, or None."""
    try:
        manifest = read_manifest(out)
        if manifest.fingerprint != wanted or manifest.failed:
            return None
        open_artefact(out, manifest.kind)
    except (OSError, MissingError, CheckError):
        return None
    return manifest


def _consult(guard: Guard, out: Path, wanted: str) -> None:
    """Let the guard raise to keep an artefact that would be replaced. An unreadable manifest has nothing to keep."""
    try:
        previous = read_manifest(out)
    except (MissingError, CheckError):
        return
    if previous.fingerprint != wanted:
        guard(previous)


def _reuse_files(out: Path, folder: Path, wanted: str) -> None:
    """Move an artefact that is damaged or has failed rows to the work folder, so that its good files are reused."""
    try:
        manifest = read_manifest(out)
    except (MissingError, CheckError):
        return
    # The target of a link stays where it is.
    if manifest.fingerprint == wanted and not folder.exists() and not out.is_symlink():
        out.rename(folder)


def _register_finished(work: Work) -> None:
    """Register the unchanged files of an artefact that was moved to the work folder."""
    with suppress(MissingError, CheckError):
        manifest = read_manifest(work.folder)
        work.register_existing(manifest.files)


def _fill(folder: Path, artefact: ArtefactSpec, fill: Callable[[Work], None]) -> Manifest:
    work, started = Work(folder), time.monotonic()
    make_folder(folder / DONE)
    _register_finished(work)
    earlier = _read_seconds(folder)
    try:
        fill(work)
    except BaseException as error:
        # The manifest states the seconds of all runs. On a full disk, those of this run are lost.
        with suppress(OSError):
            write_text(folder / DONE / _SECONDS, str(earlier + time.monotonic() - started))
        # Libraries in C++ and Rust report a full disk under types of their own.
        if not isinstance(error, Exception) or (full := full_disk(error)) is None:
            raise
        raise full from error
    manifest = _manifest(artefact, work, earlier + time.monotonic() - started)
    write_text(folder / MANIFEST, manifest.to_json())
    return manifest


def _read_seconds(folder: Path) -> float:
    """Return the seconds that interrupted runs have spent on a work folder."""
    try:
        return float((folder / DONE / _SECONDS).read_text())
    except (OSError, ValueError):
        return 0.0


def _manifest(artefact: ArtefactSpec, work: Work, seconds: float) -> Manifest:
    # Versions are recorded for the reader. They are no part of the fingerprint.
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
    """Remove files that are not part of the artefact: excluded files, and uncommitted files of killed processes."""
    extra = list(unexpected_files(folder, files))
    for path in extra:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # Without this, a power cut could bring back a name, which would then lie in the finished artefact.
    for parent in {path.parent for path in extra}:
        sync_folder(parent)


def _move(folder: Path, out: Path) -> None:
    """Replace `out` by the complete work folder."""
    # Two renames: for an instant `out` is absent, and never incomplete.
    old = folder.with_name(folder.name + _OLD)
    if out.exists():
        _remove(old)
        out.rename(old)
    folder.rename(out)
    sync_folder(out.parent)
    sync_folder(folder.parent)
    # From here on the new artefact is in place. A kill leaves only files that the next run removes.
    shutil.rmtree(out / DONE, ignore_errors=True)
    _remove(old)


def _remove(folder: Path) -> None:
    """Remove a folder. Of a link only the link is removed."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _leftovers(out: Path, folder: Path) -> bool:
    """Return whether a killed run left files of an artefact that is complete now."""
    paths = (folder, out / DONE, holder_file(out, folder.parent))
    return any(path.exists() for path in paths) or any(_beside(out, _OLD))


def _beside(out: Path, ending: str) -> Iterator[Path]:
    """Yield the work folders of an artefact, of any fingerprint, whose names have an ending.

    The ending `_OLD` marks a replaced artefact that a killed process did not remove.
    """
    name = re.compile(rf"{re.escape(out.name)}-[0-9a-f]{{16}}{re.escape(ending)}")
    with suppress(FileNotFoundError):
        yield from [path for path in (out.parent / WORK).iterdir() if name.fullmatch(path.name)]
