"""Locks that admit one run at a time to an artefact. A second run waits and names the process that holds the lock.

The kernel's lock (flock) is used. It ends with the process that holds it, even if that process is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relabel.core.progress import SILENT, Progress
from relabel.store.atomic import make_folder

_PATIENCE = 1.0  # seconds of waiting before a note is shown


@contextmanager
def exclusive(out: Path, folder: Path, progress: Progress = SILENT) -> Iterator[None]:
    """Hold the lock of an artefact inside a `with` block.

    Parameters
    ----------
    out : Path
        Folder of the artefact.
    folder : Path
        Folder of the lock file, beside the work folders.
    progress : Progress
        Shows a note while another run is waited for.

    Examples
    --------
    >>> from pathlib import Path
    >>> with exclusive(Path("labels/out"), Path("labels/.work")):
    ...     Path("labels/.work/out.pid").exists()
    True
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
