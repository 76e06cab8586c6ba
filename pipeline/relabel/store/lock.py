"""One run at a time on an artefact; the second waits and says for whom.

The lock is the kernel's (flock): it ends with the process that holds it, whatever ends that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relabel.core.progress import SILENT, Progress
from relabel.store.atomic import make_folder

_PATIENCE = 1.0  # seconds before the note


@contextmanager
def exclusive(out: Path, folder: Path, progress: Progress = SILENT) -> Iterator[None]:
    """Hold the lock of an artefact.

    Parameters
    ----------
    out : Path
        The artefact.
    folder : Path
        Where its lock lies, beside its work.
    progress : Progress
        Told that another run is waited for.
    """
    from filelock import FileLock, Timeout

    make_folder(folder)
    lock, holder = FileLock(folder / f"{out.name}.lock"), holder_file(out, folder)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        progress.note(f"waiting for another run on {out}{_pid(holder)}")
        lock.acquire()
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def holder_file(out: Path, folder: Path) -> Path:
    """Return the file that names the process that holds the lock of an artefact; a killed process leaves it."""
    return folder / f"{out.name}.pid"


def _pid(holder: Path) -> str:
    try:
        return f" (pid {int(holder.read_text())})"
    except (OSError, ValueError):
        return ""
