"""Cases in forked processes with limits of time and memory, so that a hang or a crash ends one case only."""

from __future__ import annotations

import json
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20
"""Seconds that one case may take."""
_SHOWN = 2000  # characters of a traceback at either end
MEMORY = 2 << 30
"""Bytes of address space that a batch may take beside those it begins with."""


@dataclass(frozen=True)
class Failure:
    """A case that ended neither with a result nor with an error of the contract."""

    case: int
    reason: str


def run_cases(run: Callable[[int], str | None], cases: Iterable[int], folder: Path) -> list[Failure]:
    """Run cases in child processes; if a child dies, another one continues with the next case.

    Parameters
    ----------
    run : callable
        Runs one case; returns the reason for a failure, or None. An exception is a failure.
    cases : iterable of int
    folder : Path
        For the log of the child.
    """
    left, failures, log = list(cases), [], folder / "cases.log"
    while left:
        log.write_bytes(b"")
        child = os.fork()
        if child == 0:
            _child(run, left, log)
        status = os.waitpid(child, 0)[1]
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        failures += [Failure(line["case"], line["reason"]) for line in lines if "reason" in line]
        started = [line["case"] for line in lines if "reason" not in line]
        left = left[len(started) :]
        if status:
            ended = "no answer in time" if os.WTERMSIG(status) == signal.SIGALRM else f"process ended with {status}"
            failures.append(Failure(started[-1], ended))
    return failures


def _child(run: Callable[[int], str | None], cases: list[int], log: Path) -> None:
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process even inside a C library
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
        with log.open("a", encoding="utf-8", buffering=1) as file:
            for case in cases:
                file.write(json.dumps({"case": case}) + "\n")
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                try:
                    reason = run(case)
                except BaseException as error:
                    text = traceback.format_exc()
                    reason = f"{type(error).__name__}\n{text[:_SHOWN]}\n...\n{text[-_SHOWN:]}"
                signal.setitimer(signal.ITIMER_REAL, 0)
                if reason is not None:
                    file.write(json.dumps({"case": case, "reason": reason}) + "\n")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
