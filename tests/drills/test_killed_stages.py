"""Contract: each stage, killed at random points and then rerun, leaves the bytes of an undisturbed run and no
process.
"""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest
from tests.drills.nursery import Fault
from tests.drills.trails import Step

IN_A_ROW = 6
"""Most kills before a stage is let finish."""


def instant(step: Step, chance: random.Random) -> Fault:
    """Draw a call at which the process is killed, or a time, which may fall into a library call."""
    if chance.random() < 0.6:
        return Fault("kill", at=chance.randrange(step.calls), after=chance.random() < 0.5)
    return Fault("kill", seconds=chance.uniform(0.01, step.seconds))


@pytest.mark.slow
@pytest.mark.timeout(4800)
def test_a_repeatedly_killed_stage_ends_with_the_same_bytes(trail: Any, budget: Any, tally: Any) -> None:
    chance, faults = random.Random(budget.seed), []
    for step, share in trail.shares(budget.kills, 4, chance):
        kills = 0
        while kills < share:
            trail.lay(step.before)
            faults_drawn = []
            try:
                for _ in range(min(share - kills, IN_A_ROW)):
                    faults_drawn.append(instant(step, chance))
                    end = trail.run(step, faults_drawn[-1])
                    ends = (0, 5, -signal.SIGKILL)  # 5: the call belonged to a child process of the run
                    assert end.code in ends, (step.title, faults_drawn, end.output)
                    if end.code == 0:
                        break
                    kills += 1
                trail.finish(step)
            except AssertionError as error:
                faults.append((step.title, faults_drawn, str(error)[:2000]))
                print(faults[-1])
                break
        tally["kills", step.title] += kills
        print(f"{step.title}: {kills} kills, {len(faults)} faults so far")
    assert faults == []
