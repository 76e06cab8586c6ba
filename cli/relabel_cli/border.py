"""The border between Python and the shell: every exception becomes one line on stderr and an exit code."""

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
from relabel_cli import interrupt
from relabel_cli.main import load_root
from relabel_cli.streams import CLOSED_PIPE, write_message

_ALLOCATOR = "can't allocate memory"  # in torch's RuntimeError when the CPU allocator fails


def run(load: Callable[[], Any] = load_root) -> int:
    """Run the command line of this process with the app that `load` returns; return its exit code."""
    # A result may hold characters that the encoding of the terminal lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return load()(standalone_mode=False) or 0
    except SystemExit as end:
        # Typer prints help texts itself, and exits with 1 if their reader has gone.
        if isinstance(end.__context__, BrokenPipeError):
            return CLOSED_PIPE
        raise
    except (Exception, KeyboardInterrupt) as error:
        # The options may not have been parsed yet, so -v is looked up in the raw arguments.
        return report(error, verbose=not {"-v", "--verbose"}.isdisjoint(sys.argv))


def report(error: BaseException, verbose: bool = False) -> int:
    """Write the reason why a command ended to stderr, in one line; return its exit code.

    `verbose`: whether to write the traceback as well. A usage error has none.
    """
    if verbose and _usage(error) is None:
        write_message("".join(traceback.format_exception(error)).rstrip())
    message, code = _explain(error)
    write_message(" ".join(line.strip() for line in message.splitlines()))
    return code


def _explain(error: BaseException) -> tuple[str, int]:
    """Return the line of an error and its exit code."""
    if isinstance(error, KeyboardInterrupt):
        return interrupt.LINE, interrupt.EXIT_CODE
    if isinstance(error, RelabelError):
        return f"error: {error}", error.exit_code
    if (usage := _usage(error)) is not None:
        return f"error: {usage}", 2
    # By name and message: torch is not imported for the sake of an error.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _ALLOCATOR in str(error):
        todo = "Run it again with a lower --memory or fewer --threads or --workers; finished work is kept."
        return f"error: out of memory. {todo}", 5
    # A missing module of relabel itself is a bug. Stages name other extras themselves.
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("relabel"):
        return f"error: {error}. Run `pip install '{PACKAGE}[pipeline]'`.", 3
    if isinstance(error, OSError) and (explained := _system(error)) is not None:
        return explained
    return f"error: {_bug(error)}", 1


def _usage(error: BaseException) -> str | None:
    """Return the message of a usage error of click; None for any other error."""
    # Recognized by its method, since typer may carry a copy of click with classes of its own.
    format_message: Any = getattr(error, "format_message", None)
    if format_message is None:
        return None
    context = getattr(error, "ctx", None)
    command = "relabel" if context is None else context.command_path
    return f"{format_message().rstrip('.')}. See `{command} --help`."


def _system(error: OSError) -> tuple[str, int] | None:
    """Return the line and exit code of an operating system's error; None if the user's machine is not its cause."""
    if error.filename is None and error.errno not in FULL | HANDLES:
        return None
    if error.errno == errno.ENOENT:
        return f"error: {error.filename}: {error.strerror}.", 3
    explained = system_error(error, "disk")
    return f"error: {explained}", explained.exit_code


def _bug(error: BaseException) -> str:
    """Write the traceback to a file, or to stderr if no file can be written; return the line that reports a bug."""
    from importlib.metadata import version

    text = "".join(traceback.format_exception(error))
    message = "".join(traceback.format_exception_only(error)).strip()
    head = f"relabel {version(PACKAGE)}, Python {platform.python_version()}, {platform.platform()}"
    try:
        number, path = tempfile.mkstemp(prefix="relabel-bug-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{head}\n{sys.argv}\n\n{text}")
        place = f"the traceback is in {path}"
    except OSError:
        write_message(text.rstrip())
        place = "the traceback is above"
    ask = "please report it with the output of `relabel doctor`"
    return f"internal error (a bug in relabel): {message[:500]}; {place}; {ask}"
