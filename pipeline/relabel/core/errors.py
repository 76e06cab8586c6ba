"""Errors that a user can cause: each says what, where and what to do, and carries its exit code.

Anything else that escapes is a bug of ours (exit code 1).
"""

from __future__ import annotations

import errno
import os
from typing import Any

_SHOWN = 1500  # characters of each part of a message, which may quote a file


class RelabelError(Exception):
    """Base of every error that a user can cause.

    Parameters
    ----------
    what : str
        What is wrong, one clause.
    where : str, optional
        File, line, shard or id.
    todo : str, optional
        What to do next; an exact command where there is one.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        self.what, self.where, self.todo = what, where, todo
        super().__init__(what, where, todo)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)  # whatever a child's own parameters are

    def __str__(self) -> str:
        text = f"{_clip(self.where)}: {_clip(self.what)}" if self.where else _clip(self.what)
        return f"{text}. {_clip(self.todo)}" if self.todo else text


def _clip(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _again(kind: type[RelabelError], args: tuple[Any, ...], state: dict[str, Any]) -> RelabelError:
    """Make an error that comes from another process."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class UsageError(RelabelError):
    """An option or parameter that makes no sense (exit code 2)."""

    exit_code = 2


class MissingError(RelabelError):
    """A file, model, runtime or optional package that is not there (exit code 3)."""

    exit_code = 3


class CheckError(RelabelError):
    """Data that fails a check: a hash, a count, a duplicate id, a NaN (exit code 4)."""

    exit_code = 4


class PartialError(RelabelError):
    """Work that stopped half-way and lost nothing: run it again (exit code 5)."""

    exit_code = 5


class FailedRowsError(PartialError):
    """Rows that a source could not encode, in an artefact that has all others."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a disk that has no room."""
CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Error numbers of a file or folder that may not be read or written."""
HANDLES = frozenset({errno.EMFILE, errno.ENFILE})
"""Error numbers of a process or machine with too many open files."""
_PATH = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST})


def full_disk(error: Exception) -> OSError | None:
    """Return the error of a full disk that a library in C++ or Rust reports under a type of its own, else None.

    torch and safetensors raise a RuntimeError or a SafetensorError; only their text says why they could not write.
    """
    if isinstance(error, OSError | RelabelError):
        return None
    text = str(error)
    for code in FULL:
        if os.strerror(code) in text:
            return OSError(code, os.strerror(code))
    if "PytorchStreamWriter failed" in text or "inline_container.cc" in text:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return None


def system_error(error: OSError, where: object) -> RelabelError:
    """Return the error that tells a user about an error of the operating system, with the advice that fits it.

    Parameters
    ----------
    error : OSError
    where : object
        File or folder, for errors that name none.

    Returns
    -------
    RelabelError
        PartialError for a full disk and for whatever may pass, CheckError for a lack of permission, UsageError for a
        path that cannot be.
    """
    what, place = error.strerror or str(error), str(error.filename or where)
    if error.errno in FULL:
        todo = "Free some space and run it again; finished files are kept."
        return PartialError(f"could not write: {what}", where=place, todo=todo)
    if error.errno in CLOSED:
        todo = "Change the permissions, or name another folder; finished files are kept."
        return CheckError(what, where=place, todo=todo)
    if error.errno in _PATH:
        return UsageError(what, where=place, todo="Name another file or folder.")
    if error.errno in HANDLES:
        todo = "Raise the limit of open files (`ulimit -n`) and run it again; finished files are kept."
        return PartialError(what, where=place, todo=todo)
    return PartialError(what, where=place, todo="Run it again; finished files are kept.")
