"""Errors that a user can cause. Each one names the problem, the place and the next step, and carries an exit code.

Any other exception that escapes is a bug in relabel (exit code 1).
"""

from __future__ import annotations

import errno
import os
from typing import Any

_MAX_PART = 1500  # characters of each part of a message, because a part may quote a file


class RelabelError(Exception):
    """Base class of all errors that a user can cause.

    Parameters
    ----------
    problem : str
        The fault, in one clause.
    where : str, optional
        File, line, shard or id.
    todo : str, optional
        The next step, as an exact command where there is one.

    Examples
    --------
    >>> print(RelabelError("no such file", where="captions.csv", todo="Check the path."))
    captions.csv: no such file. Check the path.
    """

    exit_code = 1

    def __init__(self, problem: str, *, where: str | None = None, todo: str | None = None) -> None:
        self.problem, self.where, self.todo = problem, where, todo
        super().__init__(problem, where, todo)

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses may take other parameters, so unpickling must not call their `__init__`.
        return _rebuild, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        text = f"{_clip(self.where)}: {_clip(self.problem)}" if self.where else _clip(self.problem)
        return f"{text}. {_clip(self.todo)}" if self.todo else text


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_PART else f"{text[:_MAX_PART]}..."


def _rebuild(kind: type[RelabelError], args: tuple[Any, ...], state: dict[str, Any]) -> RelabelError:
    """Rebuild an error that was pickled in another process."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class UsageError(RelabelError):
    """Invalid option or parameter (exit code 2)."""

    exit_code = 2


class MissingError(RelabelError):
    """Missing file, model, runtime or optional package (exit code 3)."""

    exit_code = 3


class CheckError(RelabelError):
    """Data that fails a check: a hash, a count, a duplicate id, a NaN (exit code 4)."""

    exit_code = 4


class PartialError(RelabelError):
    """Work that stopped half-way without loss, so that it can be run again (exit code 5)."""

    exit_code = 5


class FailedRowsError(PartialError):
    """Rows that a source could not encode, in an artefact that holds all other rows."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a disk without space."""
CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Error numbers of a file or folder without read or write permission."""
HANDLES = frozenset({errno.EMFILE, errno.ENFILE})
"""Error numbers of a process or machine with too many open files."""
_PATH = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST})


def full_disk(error: Exception) -> OSError | None:
    """Return the `OSError` behind a C++ or Rust library's report of a full disk, or None.

    torch and safetensors raise a RuntimeError or a SafetensorError. Only their text says why the write failed.

    Examples
    --------
    >>> full_disk(RuntimeError("[enforce fail at inline_container.cc:659] unexpected pos")).strerror
    'No space left on device'
    >>> full_disk(RuntimeError("shapes do not match")) is None
    True
    """
    # An OSError has its own number, and a RelabelError its own advice.
    if isinstance(error, OSError | RelabelError):
        return None
    text = str(error)
    for code in FULL:
        if os.strerror(code) in text:
            return OSError(code, os.strerror(code))
    # torch's writer reports the position in the archive and drops the reason of the system.
    if "PytorchStreamWriter failed" in text or "inline_container.cc" in text:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return None


def system_error(error: OSError, where: object) -> RelabelError:
    """Return the user-facing error for an error of the operating system, with the advice that fits its number.

    Parameters
    ----------
    error : OSError
    where : object
        File or folder, for errors that name none.

    Returns
    -------
    RelabelError
        PartialError for a full disk and for errors that may pass, CheckError for a lack of permission, UsageError for
        an impossible path.

    Examples
    --------
    >>> print(system_error(PermissionError(13, "Permission denied"), "labels/coco"))
    labels/coco: Permission denied. Change the permissions, or name another folder; finished files are kept.
    """
    problem, place = error.strerror or str(error), str(error.filename or where)
    if error.errno in FULL:
        todo = "Free some space and run it again; finished files are kept."
        return PartialError(f"could not write: {problem}", where=place, todo=todo)
    if error.errno in CLOSED:
        todo = "Change the permissions, or name another folder; finished files are kept."
        return CheckError(problem, where=place, todo=todo)
    if error.errno in _PATH:
        return UsageError(problem, where=place, todo="Name another file or folder.")
    if error.errno in HANDLES:
        todo = "Raise the limit of open files (`ulimit -n`) and run it again; finished files are kept."
        return PartialError(problem, where=place, todo=todo)
    # Any other number (an I/O error, a stale file handle) may not come back.
    return PartialError(problem, where=place, todo="Run it again; finished files are kept.")
