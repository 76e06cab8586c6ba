"""Errors that a user can cause: each says what, where and what to do, and carries its exit code.

Anything else that escapes is a bug of ours (exit code 1).
"""

from __future__ import annotations

from typing import Any


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
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}. {self.todo}" if self.todo else text


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
