"""Checks of paths that a user names, before their content is read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from relabel.core.errors import MissingError, UsageError

_ABSENT = (errno.ENOENT, errno.ENOTDIR)


def file_status(path: Path) -> os.stat_result | None:
    """Return the status of a path, or None if nothing exists there.

    Raises
    ------
    MissingError
        If the path cannot be followed: too long, a loop of links, a folder without permission.
    """
    try:
        return path.stat()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise MissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        # The name holds a NUL character.
        raise MissingError(f"cannot be read: {error}", where=repr(str(path))) from error


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder. Raises like `file_status`.

    Examples
    --------
    >>> from pathlib import Path
    >>> is_folder(Path(".")), is_folder(Path("no-such-folder"))
    (True, False)
    """
    status = file_status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file. Raises like `file_status`."""
    status = file_status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def check_regular(path: Path, problem: str = "no such file", todo: str | None = None) -> Path:
    """Return the path if it is a regular file that can be opened, else raise.

    Files are hashed before they are read. A pipe would be empty at the second pass, and a device may never end.

    Parameters
    ----------
    path : Path
    problem, todo : str, optional
        Message for a missing file.

    Raises
    ------
    MissingError
        If the file is missing, is a folder, or cannot be opened.
    UsageError
        If the path is a pipe, a device or a socket.
    """
    status = file_status(path)
    if status is None:
        raise MissingError(problem, where=str(path), todo=todo)
    if stat.S_ISDIR(status.st_mode):
        raise MissingError("expected a file, found a folder", where=str(path))
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("not a regular file", where=str(path), todo="Give a file; pipes and devices are not read.")
    # Permission to read shows only when the file is opened.
    try:
        path.open("rb").close()
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return path
