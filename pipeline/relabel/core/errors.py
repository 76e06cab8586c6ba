"""Errors that a user can cause, and the names that a mistyped one resembles.

Each error names the problem, the place and the next step, and carries an exit code. Any other exception that escapes is
a bug in relabel (exit code 1).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class RelabelError(Exception):
    """Base class of all errors that a user can cause.

    `problem`: the fault, in one clause. `where`: file, line, shard or id. `todo`: the next step, as an exact command
    where there is one.
    """

    exit_code = 1

    def __init__(self, problem: str, *, where: str | None = None, todo: str | None = None) -> None:
        # Only the problem is an argument of `Exception`: another process rebuilds an error from it and its fields.
        super().__init__(problem)
        self.problem, self.where, self.todo = problem, where, todo

    def __str__(self) -> str:
        # Each part is cut, because it may quote a file.
        text = f"{self.where:.1500}: {self.problem:.1500}" if self.where else f"{self.problem:.1500}"
        return f"{text}. {self.todo:.1500}" if self.todo else text


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


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a disk without space."""


def system_error(error: OSError, where: object) -> RelabelError:
    """Return a PartialError for a full disk, else a CheckError; `where`: for errors that name no file."""
    problem, place = error.strerror or str(error), str(error.filename or where)
    if error.errno in FULL:
        todo = "Free some space and run it again; finished files are kept."
        return PartialError(f"could not write: {problem}", where=place, todo=todo)
    todo = "Check the path and its permissions, and run it again; finished files are kept."
    return CheckError(problem, where=place, todo=todo)


def missing_package(error: ModuleNotFoundError) -> MissingError | None:
    """Return an error that names the extra with a missing package; None for a module of relabel itself, a bug."""
    if (error.name or "").startswith("relabel"):
        return None
    # torch belongs to both extras, and the other one is much larger.
    extra = {"torch": "train", "nncf": "cpu"}.get(error.name or "", "pipeline")
    return MissingError(str(error), todo=f"Run `pip install 'relabel-itr[{extra}]'`.")


@contextmanager
def naming_extras() -> Iterator[None]:
    """Raise `missing_package` in place of the error of an import; also a decorator of what Python callers use.

    Advice has their parameters: see `name_parameters`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from error
    except RelabelError as error:
        error.todo = error.todo and name_parameters(error.todo)
        raise


def name_parameters(text: str) -> str:
    """Return a message with options as parameters of Python, except in a whole command between backticks."""
    text = re.sub(r"--set ('?)(?:ingest|sources\.[^\s.]+)\.([^\s']*)\1", r"\2", text)
    return re.sub(r"(`[^`]*`)|--([a-z-]*[a-z])", lambda m: m[1] or m[2].replace("-", "_"), text)


def choices(name: str, names: Iterable[str]) -> str:
    """Return the advice for a name that does not exist: the names that resemble it, and all names."""
    # A table may have two columns of one name, which is listed once.
    existing = list(dict.fromkeys(names))
    close = get_close_matches(name.lower(), existing)
    question = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"{question}There {'is' if len(existing) == 1 else 'are'} {', '.join(existing) or 'none'}."
