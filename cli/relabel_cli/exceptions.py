"""The one handler of exceptions: each becomes one line on stderr and an exit code."""

from __future__ import annotations

import sys
import traceback
from tempfile import NamedTemporaryFile

from relabel.core.errors import missing_package, system_error

_ALLOCATOR = "can't allocate memory"  # in torch's RuntimeError when the CPU allocator fails


def report(error: Exception) -> int:
    """Write the reason why a command ended to stderr, in one line; return its exit code."""
    message, code = _explain(error)
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message of an error and its exit code."""
    # A usage error of click, recognized by its method: typer carries a copy of click with separate classes.
    if (format_message := getattr(error, "format_message", None)) is not None:
        context = getattr(error, "ctx", None)
        command = "relabel" if context is None else context.command_path
        message = str(format_message())
        return f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{command} --help`.", 2
    # An error of relabel or of the trainer that a user can cause.
    if (code := getattr(error, "exit_code", None)) is not None:
        return str(error), int(code)
    # By name and message: torch is not imported for the sake of an error.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _ALLOCATOR in str(error):
        hint = "Run it again with a lower --memory or fewer --threads or --workers; finished work is kept."
        return f"out of memory. {hint}", 5
    # Where a choice is left, stages name the extras themselves.
    if isinstance(error, ModuleNotFoundError) and (named := missing_package(error)) is not None:
        return str(named), named.exit_code
    # Names are written as UTF-8, and their bytes read as such.
    if isinstance(error, UnicodeEncodeError | UnicodeDecodeError):
        return f"not UTF-8: {error.object[max(0, error.start - 30) : error.end + 20]!r}. Rename or convert it.", 2
    # Python's error for `~` without $HOME, and for `~NAME` without a user NAME.
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return "no home folder of this user is known. Set HOME, or write the path without `~`.", 3
    if isinstance(error, FileNotFoundError):
        return f"{error.filename}: {error.strerror}." if error.filename else str(error), 3
    # Without a number, the user's machine is not the cause.
    if isinstance(error, OSError) and error.errno is not None:
        explained = system_error(error, "disk")
        return str(explained), explained.exit_code
    return _bug(error), 1


def _bug(error: Exception) -> str:
    """Write the traceback to a file; return the line that reports a bug."""
    with NamedTemporaryFile("w", encoding="utf-8", prefix="relabel-bug-", suffix=".txt", delete=False) as file:
        file.write(ascii(sys.argv) + "\n\n")
        traceback.print_exception(error, file=file)
    message = "".join(traceback.format_exception_only(error)).strip()
    ask = "please report it with the output of `relabel doctor`"
    return f"internal error (a bug in relabel): {message[:500]}; the traceback is in {file.name}; {ask}"
