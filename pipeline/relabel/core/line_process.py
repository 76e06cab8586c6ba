"""Programs that read lines and write lines: every Java program runs through this module.

`LineProcess` is one running program. It has a process group of its own, and threads pump its three pipes, so that
neither side can block the other. It is killed with its group when it is silent for too long, when nobody refers to it
any more and when Python exits. If Python itself is killed, the program sees the end of its input.

`map_lines` runs a filter over a list of lines: the PTB tokenizer and METEOR's normaliser. Programs that answer question
by question, METEOR and SPICE's parser, run in a `WorkerPool` (see `worker_pool`).
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import IO, Any

from relabel.core.errors import MissingError, PartialError

SILENCE = 120.0
"""Seconds without a line after which a program counts as hung; METEOR's slowest start takes ten of them."""


class JavaError(PartialError):
    """A Java program died, fell silent or gave an answer that cannot be right."""


class SilentError(JavaError):
    """A Java program said nothing for too long."""


class LineProcess:
    """A running program that takes lines and gives lines; a slow or dead one never blocks the caller.

    Parameters
    ----------
    command : sequence of str
    events : queue.SimpleQueue, optional
        Where ``(self, lines)`` is put whenever lines came, and ``(self, None)`` at the end of its output. One queue may
        serve several processes.

    Raises
    ------
    MissingError
        If the program cannot be started at all.
    """

    def __init__(
        self, command: Sequence[str], events: queue.SimpleQueue[tuple[LineProcess, list[str] | None]] | None = None
    ) -> None:
        pipe = subprocess.PIPE
        locale = os.environ | {"LC_ALL": "C.UTF-8"}  # lest Java cannot open a file whose name is not ASCII
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=locale
            )
        except OSError as error:
            raise MissingError(f"does not start: {error.strerror or error}", where=command[0]) from error
        self.events = queue.SimpleQueue() if events is None else events
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors: deque[bytes] = deque(maxlen=40)
        self.kill = weakref.finalize(self, _kill, self._process, self._input, os.getpid())  # runs at exit, too
        me = weakref.ref(self)
        self._pumps = [
            threading.Thread(target=target, args=args, daemon=True)
            for target, args in (
                (_pump_in, (self._process.stdin, self._input)),
                (_pump_out, (self._process.stdout, me, self.events)),
                (_pump_errors, (self._process.stderr, self._errors)),
            )
        ]
        for pump in self._pumps:
            pump.start()

    def send(self, lines: Iterable[str]) -> None:
        """Queue lines for the program's input; returns at once."""
        self._input.put("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))

    def end_input(self) -> None:
        """Close the program's input once everything queued is written."""
        self._input.put(None)

    def receive(self, silence: float) -> list[str] | None:
        """Wait for lines; None at the end of the output.

        Raises
        ------
        SilentError
            If nothing comes for `silence` seconds.
        """
        try:
            return self.events.get(timeout=silence)[1]
        except queue.Empty:
            raise SilentError(f"Java said nothing for {silence:g} s{self.complaint()}") from None

    def exit_code(self) -> int:
        """Wait a little for the end of a program whose output has ended, and return its exit code."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(5)
        self.kill()
        return self._process.wait()

    def complaint(self) -> str:
        """What it last wrote to its error output, as a clause to append to a message; empty if nothing."""
        self._pumps[-1].join(0.5)
        text = b"".join(self._errors).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f" (its last words: {' / '.join(lines[-3:])[-400:]})" if lines else ""


def map_lines(
    command: Sequence[str], lines: Sequence[str], silence: float = SILENCE, done: Callable[[int], None] | None = None
) -> list[str]:
    """Feed all lines to a program, close its input, and return all lines it gives.

    Parameters
    ----------
    command : sequence of str
    lines : sequence of str
        None holds a line break.
    silence : float
        Seconds without output after which it is given up.
    done : callable, optional
        Told how many more lines came back.

    Raises
    ------
    JavaError
        If it ends with an error; SilentError if it falls silent.
    """
    process = LineProcess(command)
    try:
        process.send(lines)
        process.end_input()
        found: list[str] = []
        while (more := process.receive(silence)) is not None:
            found += more
            if done is not None:
                done(len(more))
        if process.exit_code():
            raise JavaError(end_reason(process))
        return found
    finally:
        process.kill()


def end_reason(process: LineProcess) -> str:
    """Say how a program whose output has ended did so."""
    return f"Java ended with exit code {process.exit_code()}{process.complaint()}"


def _kill(process: subprocess.Popen[bytes], inbox: queue.SimpleQueue[bytes | None], owner: int) -> None:
    if os.getpid() != owner:  # a forked child must not end its parent's programs
        return
    inbox.put(None)
    with suppress(OSError):
        if process.poll() is None and hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _pump_in(pipe: IO[bytes], inbox: queue.SimpleQueue[bytes | None]) -> None:
    with suppress(OSError, ValueError):
        while (data := inbox.get()) is not None:
            pipe.write(data)
            pipe.flush()
    with suppress(OSError, ValueError):
        pipe.close()


def _pump_out(pipe: IO[bytes], owner: weakref.ref[LineProcess], events: queue.SimpleQueue[Any]) -> None:
    rest = b""
    with suppress(OSError, ValueError):
        while data := os.read(pipe.fileno(), 1 << 16):
            *whole, rest = (rest + data).split(b"\n")
            if whole:
                events.put((owner(), [line.rstrip(b"\r").decode("utf-8", "replace") for line in whole]))
    events.put((owner(), None))
    with suppress(OSError):
        pipe.close()


def _pump_errors(pipe: IO[bytes], errors: deque[bytes]) -> None:
    with suppress(OSError, ValueError):
        while data := pipe.readline(1 << 12):
            errors.append(data)
    with suppress(OSError):
        pipe.close()
