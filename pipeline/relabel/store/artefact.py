"""An artefact: a folder of files with a manifest, built in a work folder and moved into place when whole.

The work folder lies beside the artefact (same file system) under a name made from the fingerprint, so work is
never resumed under other inputs or parameters, and a tool that deletes the artefact first (DVC does) deletes no work.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from relabel.errors import CheckError, MissingError, PartialError
from relabel.store.atomic import sync_folder, write_text
from relabel.store.manifest import MANIFEST, Draft, Manifest, open_artefact
from relabel.store.work import Work

_LIBRARIES = ("numpy", "pyarrow", "torch", "sentence-transformers", "faiss-cpu", "numba", "pycocoevalcap")


def build(out: Path, draft: Draft, fill: Callable[[Work], None]) -> tuple[Manifest, bool]:
    """Build an artefact, or find it already built.

    Parameters
    ----------
    out : Path
        The artefact's folder; replaced only once the new one is whole.
    draft : Draft
    fill : callable
        Writes the files through the Work it gets; resumable, since finished files are kept.

    Returns
    -------
    manifest : Manifest
    built : bool
        False if it was there already, under the same fingerprint and with unchanged files.

    Raises
    ------
    PartialError
        On a full disk; finished files are kept for the next run.
    """
    with _lock(out):
        current = _current(out, draft.fingerprint)
        if current is not None:
            return current, False
        work = Work(_work_folder(out, draft.fingerprint))
        started = time.monotonic()
        try:
            (work.folder / ".done").mkdir(parents=True, exist_ok=True)
            fill(work)
            manifest = _manifest(draft, work, time.monotonic() - started)
            write_text(work.folder / MANIFEST, manifest.to_json())
            _move(work.folder, out)
        except OSError as error:
            raise disk_error(error, out) from error
    return manifest, True


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


def _current(out: Path, wanted: str) -> Manifest | None:
    try:
        kind = json.loads((out / MANIFEST).read_text(encoding="utf-8"))["kind"]
        manifest = open_artefact(out, kind)
    except (OSError, ValueError, KeyError, TypeError, MissingError, CheckError):
        return None
    if manifest.fingerprint != wanted:
        return None
    shutil.rmtree(out / ".done", ignore_errors=True)  # left by a run that was killed right after its last rename
    return manifest


def _work_folder(out: Path, wanted: str) -> Path:
    return out.parent / ".work" / f"{out.name}-{wanted[:16]}"


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
    old = folder.with_name(folder.name + ".old")
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    folder.rename(out)
    sync_folder(out.parent)
    shutil.rmtree(out / ".done", ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    from filelock import FileLock

    folder = out.parent / ".work"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, out) from error
    with FileLock(folder / f"{out.name}.lock"):
        yield
