"""Errors that a user can cause, and suggestions for mistyped names.

Each error has a problem, a place, a next step and an exit code. Any other exception that reaches the user is a bug in
relabel (exit code 1).
"""

from __future__ import annotations

import errno
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches


class RelabelError(Exception):
    """Base class of all errors that a user can cause.

    `problem`: the fault, in one clause. `where`: file, line, shard or id. `hint`: the next step, as an exact command if
    possible.
    """

    exit_code = 1

    def __init__(self, problem: str, *, where: str | None = None, hint: str | None = None) -> None:
        # Only the problem is passed to `Exception`: pickle rebuilds the error from this argument and the attributes.
        super().__init__(problem)
        self.problem, self.where, self.hint = problem, where, hint

    def __str__(self) -> str:
        # Each component is truncated, because it may quote a file.
        text = f"{self.where:.1500}: {self.problem:.1500}" if self.where else f"{self.problem:.1500}"
        return f"{text}. {self.hint:.1500}" if self.hint else text


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
    """Interrupted work that the next run continues (exit code 5)."""

    exit_code = 5


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a full disk."""


def system_error(error: OSError, where: object) -> RelabelError:
    """Return a PartialError if the disk is full, otherwise a CheckError. `where`: used if the error names no file."""
    problem, place = error.strerror or str(error), str(error.filename or where)
    if error.errno in FULL:
        hint = "Free some space and run it again; finished files are kept."
        return PartialError(f"could not write: {problem}", where=place, hint=hint)
    hint = "Check the path and its permissions, and run it again; finished files are kept."
    return CheckError(problem, where=place, hint=hint)


def missing_package(error: ModuleNotFoundError) -> MissingError | None:
    """Return an error that names the extra to install, or None if the missing module belongs to relabel (a bug)."""
    if (error.name or "").startswith("relabel"):
        return None
    # torch is in both extras, and `train` is much smaller than `pipeline`.
    extra = {"torch": "train", "nncf": "cpu"}.get(error.name or "", "pipeline")
    return MissingError(str(error), hint=f"Run `pip install 'relabel-itr[{extra}]'`.")


@contextmanager
def naming_extras() -> Iterator[None]:
    """Replace import errors by `missing_package`, and options in hints by parameter names for Python callers.

    See `name_parameters`. Also usable as a decorator.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from error
    except RelabelError as error:
        error.hint = error.hint and name_parameters(error.hint)
        raise


_OPTION = re.compile(
    r"`[^`]*`|--set (?P<setting>(?:'[^']*'|\"[^\"]*\"|[^\s'\"]*[^\s'\".,;:])+)"
    r"|--(?P<name>[a-z-]*[a-z])(?!=)(?: (?P<value>[A-Z]+\b|\d+|'[^']*'))?"
)


def name_parameters(text: str) -> str:
    """Return a message with options as parameters of Python, except in a whole command between backticks."""

    def replace(found: re.Match[str]) -> str:
        if setting := found["setting"]:
            return _as_argument("".join(shlex.split(setting)))
        if name := found["name"]:
            return name.replace("-", "_") + (f"={found['value']}" if found["value"] else "")
        return found[0]

    return _OPTION.sub(replace, text)


def _as_argument(setting: str) -> str:
    """Return `ingest.NAME=YAML` as an argument of Python; capital letters stand for a value and stay."""
    import yaml

    name, _, text = setting.partition("=")
    name = re.sub(r"^(ingest|sources\.[^.]+)\.", "", name)
    with suppress(yaml.YAMLError):
        text = text if text.isupper() else repr(yaml.safe_load(text))
    return f"{name}={text}"


def choices(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: similar names, and all valid names."""
    # A table may have two columns with the same name. It is listed once.
    existing = list(dict.fromkeys(names))
    close = get_close_matches(name.lower(), existing)
    question = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"{question}There {'is' if len(existing) == 1 else 'are'} {', '.join(existing) or 'none'}."
