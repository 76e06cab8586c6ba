"""Paths that a user names: checked before anything reads them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from relabel.core.errors import MissingError, UsageError

_ABSENT = (errno.ENOENT, errno.ENOTDIR)


def file_status(path: Path) -> os.stat_result | None:
    """Return the status of a path; None where nothing is there.

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
    except ValueError as error:  # a NUL character in the name
        raise MissingError(f"cannot be read: {error}", where=repr(str(path))) from error


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder; raises as `file_status`."""
    status = file_status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: Path) -> bool:
    """Tell whether a path is a regular file; raises as `file_status`."""
    status = file_status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def check_regular(path: Path, what: str = "no such file", todo: str | None = None) -> Path:
    """Return the path of a regular file that can be opened.

    Files are hashed before they are read, so a pipe would be empty at the second pass, and a device may never end.

    Parameters
    ----------
    path : Path
    what, todo : str, optional
        Message for a file that is not there.

    Raises
    ------
    MissingError
        If it is not there, is a folder, or cannot be opened.
    UsageError
        If it is a pipe, a device or a socket.
    """
    status = file_status(path)
    if status is None:
        raise MissingError(what, where=str(path), todo=todo)
    if stat.S_ISDIR(status.st_mode):
        raise MissingError("expected a file, found a folder", where=str(path))
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("not a regular file", where=str(path), todo="Give a file; pipes and devices are not read.")
    try:
        path.open("rb").close()
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return path
