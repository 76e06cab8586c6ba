"""The one handler of exceptions: each becomes one line on stderr and an exit code."""

from __future__ import annotations

import errno
import io
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from relabel.core.errors import FULL, HANDLES, PACKAGE, RelabelError, system_error

CLOSED_PIPE = 128 + 13
"""Exit code if the reader of a pipe has gone: that of a program which SIGPIPE ends."""
_ALLOCATOR = "can't allocate memory"  # in torch's RuntimeError when the CPU allocator fails


def run(load: Callable[[], Any]) -> int:
    """Run the command line of this process with the app that `load` returns; return its exit code."""
    # A result may hold characters that the encoding of the terminal lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return load()(standalone_mode=False) or 0
    except SystemExit as end:
        # Typer exits with 1 if the reader of a pipe has gone.
        if isinstance(end.__context__, BrokenPipeError):
            return CLOSED_PIPE
        raise
    except Exception as error:
        # The options may not have been parsed yet, so -v is looked up in the raw arguments.
        return report(error, verbose=not {"-v", "--verbose"}.isdisjoint(sys.argv))


def report(error: Exception, verbose: bool = False) -> int:
    """Write the reason why a command ended to stderr, in one line; return its exit code.

    `verbose`: whether to write the traceback as well. A usage error has none.
    """
    if verbose and _usage(error) is None:
        sys.stderr.write("".join(traceback.format_exception(error)))
    message, code = _explain(error)
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message of an error and its exit code."""
    if isinstance(error, RelabelError):
        return str(error), error.exit_code
    if (usage := _usage(error)) is not None:
        return usage, 2
    # By name and message: torch is not imported for the sake of an error.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _ALLOCATOR in str(error):
        todo = "Run it again with a lower --memory or fewer --threads or --workers; finished work is kept."
        return f"out of memory. {todo}", 5
    # A missing module of relabel itself is a bug. Stages name other extras themselves.
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("relabel"):
        return f"{error}. Run `pip install '{PACKAGE}[pipeline]'`.", 3
    # Without a file or a number of the machine, the user's machine is not the cause.
    if isinstance(error, OSError) and (error.filename is not None or error.errno in FULL | HANDLES):
        if error.errno == errno.ENOENT:
            return f"{error.filename}: {error.strerror}.", 3
        explained = system_error(error, "disk")
        return str(explained), explained.exit_code
    return _bug(error), 1


def _usage(error: Exception) -> str | None:
    """Return the message of a usage error of click; None for any other error."""
    # Recognized by its method, since typer may carry a copy of click with classes of its own.
    format_message: Any = getattr(error, "format_message", None)
    if format_message is None:
        return None
    context = getattr(error, "ctx", None)
    command = "relabel" if context is None else context.command_path
    return f"{format_message().rstrip('.')}. See `{command} --help`."


def _bug(error: Exception) -> str:
    """Write the traceback to a file; return the line that reports a bug."""
    from importlib.metadata import version

    number, path = tempfile.mkstemp(prefix="relabel-bug-", suffix=".txt")
    with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"relabel {version(PACKAGE)}, Python {platform.python_version()}, {platform.platform()}\n")
        file.write(f"{sys.argv}\n\n{''.join(traceback.format_exception(error))}")
    message = "".join(traceback.format_exception_only(error)).strip()
    ask = "please report it with the output of `relabel doctor`"
    return f"internal error (a bug in relabel): {message[:500]}; the traceback is in {path}; {ask}"
