"""Contract: each stage, killed or interrupted at random points and then rerun, leaves the bytes of an undisturbed run
and no process. Ctrl-C is exit code 130 and one line.
"""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest
from tests.drills.nursery import Fault, RunResult
from tests.drills.trails import Step

from relabel_cli.main import INTERRUPTED, LINE

IN_A_ROW = 6
"""Most kills before a stage is let finish."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def instant(step: Step, chance: random.Random) -> Fault:
    """Draw a call at which the process is killed, or a signal and its time, which may fall into a library call."""
    if chance.random() < 0.5:
        return Fault("kill", at=chance.randrange(step.calls), after=chance.random() < 0.5)
    return Fault("kill", seconds=chance.uniform(0.01, step.seconds), signal=chance.choice(SIGNALS))


def check_end(fault: Fault, end: RunResult) -> None:
    """Check the exit code; 5 is that of a run whose child process was killed."""
    if fault.signal == signal.SIGINT:
        assert end.code in (0, INTERRUPTED), end.output
        assert end.output.endswith(f"{LINE}\n") == (end.code == INTERRUPTED), end.output
        assert "Traceback" not in end.output, end.output
    else:
        assert end.code in (0, 5, -fault.signal), end.output


@pytest.mark.slow
@pytest.mark.timeout(4800)
def test_a_repeatedly_killed_stage_ends_with_the_same_bytes(trail: Any, budget: Any) -> None:
    chance, faults = random.Random(budget.seed), []
    for step, share in trail.shares(budget.kills, 4, chance):
        kills = 0
        while kills < share:
            trail.lay(step.before)
            drawn: list[Fault] = []
            try:
                for _ in range(min(share - kills, IN_A_ROW)):
                    drawn.append(instant(step, chance))
                    end = trail.run(step, drawn[-1])
                    check_end(drawn[-1], end)
                    if end.code == 0:
                        break
                    kills += 1
                trail.finish(step)
            except AssertionError as error:
                faults.append((step.title, drawn, str(error)[:2000]))
                print(faults[-1])
                break
        print(f"{step.title}: {kills} kills, {len(faults)} faults so far")
    assert faults == []
