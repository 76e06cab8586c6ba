"""The entry point of the command `relabel`, and Ctrl-C: one line on stderr and exit code 130, at any point.

The process ends inside the signal handler. A KeyboardInterrupt would not be reliable: callbacks from C swallow it,
imports turn it into other errors, and work goes on without the interrupted part. Nothing is lost by ending immediately,
since artefacts survive a kill at any instant. Next to nothing is imported before the handler is set.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any

from relabel_cli.terminal import EscapeStream

LINE = "Interrupted; finished work is kept. Run the same command again to go on."
INTERRUPTED = 130
"""Exit code."""
_SHOW_CURSOR = b"\x1b[?25h\n"  # progress bars hide the cursor and leave it at the end of a line


def load_root() -> Any:
    """Import and return the root command."""
    from relabel_cli.root import app

    return app


def main(load: Callable[[], Any] = load_root) -> None:
    """Run a command line with relabel's handling of errors and Ctrl-C, and exit.

    `load`: returns the Typer app to run.
    """
    exit_on_interrupt()
    code = run(load)
    # The result is written, and the interpreter is shutting down.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def run(load: Callable[[], Any]) -> int:
    """Run the command line of this process with the app that `load` returns; return its exit code."""
    # A caption may hold characters that the encoding of a terminal or pipe lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # Python has None for a stream that is closed.
    with (
        redirect_stdout(sys.stdout and EscapeStream(sys.stdout)),
        redirect_stderr(sys.stderr and EscapeStream(sys.stderr)),
    ):
        try:
            # `color`: click removes escape sequences otherwise, and hides what a caption holds.
            return load()(standalone_mode=False, color=True) or 0
        except Exception as error:
            from relabel_cli.exceptions import report

            return report(error)


def exit_on_interrupt() -> None:
    """Make SIGINT end this process and its children, but not the processes forked from it: their parent ends them.

    A SIGINT that is ignored from the start, as in a shell's background job, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    owner = os.getpid()

    def handle(*_: object) -> None:
        # A forked process inherits the handler.
        if os.getpid() != owner:
            return
        with suppress(Exception):
            import psutil

            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
        # The line is last, since bars are drawn until the end; only torchrun's first process writes it.
        if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0":
            with suppress(OSError):
                os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + f"{LINE}\n".encode())
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, handle)
