"""Ctrl-C: one line on stderr and exit code 130, whatever the process is doing.

The process ends inside the signal handler. A KeyboardInterrupt would not do: callbacks from C swallow it, imports turn
it into other errors, and the work continues without whatever was interrupted. Ending at once loses nothing, since
artefacts survive a kill at any instant.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
import weakref
from contextlib import suppress
from typing import NoReturn

LINE = "Interrupted; finished work is kept. Run the same command again to go on."
EXIT_CODE = 130
_PATIENCE = 3.0  # seconds that the cleanup may take
_SHOW_CURSOR = b"\x1b[?25h\n"  # progress bars hide the cursor and leave it at the end of a line


def exit_on_interrupt() -> None:
    """Make SIGINT end this process, but not processes forked from it, which their parent ends.

    A SIGINT that is ignored from the start, as in a shell's background job, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    owner = os.getpid()

    def handle(*_: object) -> None:
        if os.getpid() == owner:
            signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
            _end()

    signal.signal(signal.SIGINT, handle)


def ignore_interrupts() -> None:
    """Ignore SIGINT from here on: the result is written, and the interpreter is shutting down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end() -> NoReturn:
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0":  # one line per torchrun
        with suppress(OSError):
            os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + f"{LINE}\n".encode())
    with suppress(OSError):  # no complaint of a thread or a finalizer may follow the line
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with suppress(RuntimeError):
        _thread.start_new_thread(_give_up, ())  # threading.Thread takes locks that the interrupted frame may hold
    with suppress(Exception):
        if (multiprocessing := sys.modules.get("multiprocessing.util")) is not None:
            multiprocessing._run_finalizers(0)  # named semaphores, which would be reported as leaked
    with suppress(Exception):
        import psutil

        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.kill()
    with suppress(Exception):
        weakref.finalize._exitfunc()  # type: ignore[attr-defined]  # temporary folders
    os._exit(EXIT_CODE)


def _give_up() -> None:
    time.sleep(_PATIENCE)
    os._exit(EXIT_CODE)
