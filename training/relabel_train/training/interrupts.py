"""Ctrl-C in child processes: a terminal sends SIGINT to all processes, and the parent alone answers it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def blocked_interrupts() -> Iterator[None]:
    """Block SIGINT in this thread until the end, and in threads and processes started within for all their life."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # The first child process would start the tracker otherwise, which unblocks SIGINT.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_on_interrupt() -> None:
    """Let SIGINT end this process without a traceback; for a process that starts with SIGINT blocked."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
