"""The border between Python and the shell: every exception becomes one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from relabel.core.errors import FULL, HANDLES, RelabelError, system_error
from relabel_cli import interrupt
from relabel_cli.main import load_root
from relabel_cli.streams import OutputError, open_streams, write_message

_ALLOCATOR = "can't allocate memory"  # what torch's RuntimeError says


def run(load: Callable[[], Any] = load_root) -> int:
    """Run the command line of this process with the app that `load` returns; return its exit code."""
    open_streams()
    code = _guarded(lambda: load()(standalone_mode=False) or 0)
    return _guarded(_flush) or code


def report(error: BaseException, verbose: bool = False) -> int:
    """Write why a command ended to stderr, in one line; return its exit code.

    Parameters
    ----------
    error : BaseException
    verbose : bool
        Write the traceback as well, but not of a usage error.
    """
    if verbose and _usage(error) is None:
        write_message("".join(traceback.format_exception(error)).rstrip())
    message, code = _explain(error)
    if message:
        write_message(" ".join(line.strip() for line in message.splitlines()))
    return code


def _flush() -> int:
    sys.stdout.flush()
    return 0


def _guarded(work: Callable[[], int]) -> int:
    try:
        return work()
    except (Exception, KeyboardInterrupt) as error:
        return report(error, verbose=not {"-v", "--verbose"}.isdisjoint(sys.argv))


def _explain(error: BaseException) -> tuple[str, int]:
    """Return the line of an error, empty for none, and its exit code."""
    if isinstance(error, KeyboardInterrupt):
        return interrupt.LINE, interrupt.EXIT_CODE
    if isinstance(error, OutputError) and error.exit_code == OutputError.BROKEN_PIPE:
        return "", error.exit_code  # as of a program that SIGPIPE ends
    if isinstance(error, RelabelError):
        return f"error: {error}", error.exit_code
    if (usage := _usage(error)) is not None:
        return f"error: {usage}", 2
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _ALLOCATOR in str(error):
        todo = "Run it again with a lower --memory or fewer --threads or --workers; finished work is kept."
        return f"error: out of memory. {todo}", 5
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("relabel"):
        return f"error: {error}. Run `pip install 'relabel-itr[pipeline]'`.", 3
    if isinstance(error, OSError) and (explained := _system(error)) is not None:
        return explained
    return f"error: {_bug(error)}", 1


def _usage(error: BaseException) -> str | None:
    """Return the message of one of click's usage errors, whichever copy of click typer has."""
    make: Any = getattr(error, "format_message", None)
    if make is None:
        return None
    context = getattr(error, "ctx", None)
    command = "relabel" if context is None else context.command_path
    return f"{make().rstrip('.')}. See `{command} --help`."


def _system(error: OSError) -> tuple[str, int] | None:
    """Explain an error of the operating system; None if it is not the user's machine that causes it."""
    if error.filename is None and error.errno not in FULL | HANDLES:
        return None
    if error.errno == errno.ENOENT:
        return f"error: {error.filename}: {error.strerror}.", 3
    explained = system_error(error, "disk")
    return f"error: {explained}", explained.exit_code


def _bug(error: BaseException) -> str:
    """Write the traceback to a file, or to stderr if there is no place for it; return the line of a bug."""
    text = "".join(traceback.format_exception(error))
    message = "".join(traceback.format_exception_only(error)).strip()
    head = f"relabel {version('relabel-itr')}, Python {platform.python_version()}, {platform.platform()}"
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
