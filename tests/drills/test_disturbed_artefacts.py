"""Contract: each stage that was disturbed at random points and is then run undisturbed leaves the bytes of an
undisturbed run, and no process.

Killed or interrupted, Ctrl-C is exit code 130 and one line. Where the disk is full from any call on, or files are
limited in size, the stage ends with exit code 0 or 5 and an error line, never a traceback.
"""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest
from tests.drills.nursery import Fault, RunResult
from tests.drills.trails import Step, Trail

from relabel_cli.main import INTERRUPTED, LINE

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(4800)]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SIZES = (0, 10, 300, 700, 1500, 3000, 9000, 30_000)


def instant(step: Step, chance: random.Random) -> Fault:
    """Draw a call at which the process is killed, or a signal and its time, which may fall into a library call."""
    if chance.random() < 0.5:
        return Fault("kill", at=chance.randrange(step.calls), after=chance.random() < 0.5)
    return Fault("kill", seconds=chance.uniform(0.01, step.seconds), signal=chance.choice(SIGNALS))


def check_killed(fault: Fault, end: RunResult) -> None:
    """Check the exit code; 5 is that of a run whose child process was killed."""
    if fault.signal == signal.SIGINT:
        assert end.code in (0, INTERRUPTED), end.output
        assert end.output.endswith(f"{LINE}\n") == (end.code == INTERRUPTED), end.output
        assert "Traceback" not in end.output, end.output
    else:
        assert end.code in (0, 5, -fault.signal), end.output


def full_disk(step: Step, chance: random.Random) -> Fault:
    """Draw a call from which on the disk is full, or a size that no file may exceed."""
    if chance.random() < 0.6:
        return Fault("full", at=chance.randrange(step.calls))
    return Fault("size", at=chance.choice(SIZES))


def check_full(_: Fault, end: RunResult) -> None:
    """Check the exit code and its error line."""
    assert "Traceback" not in end.output, end.output
    assert end.code in (0, 5), end.output
    assert any(line.startswith("error: ") for line in end.output.splitlines()) == (end.code == 5), end.output


def test_a_repeatedly_killed_stage_ends_with_the_same_bytes(trail: Trail, budget: Any) -> None:
    assert trail.disturb(budget.kills, budget.seed, instant, check_killed) == []


def test_a_stage_on_a_full_disk_is_an_error_and_loses_nothing(trail: Trail, budget: Any) -> None:
    assert trail.disturb(budget.disks, budget.seed, full_disk, check_full) == []
