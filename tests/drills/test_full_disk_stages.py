"""Contract: a stage that meets a full disk at any call, or a limit on the size of files, ends with exit code 0 or 5
and an error line, never a traceback. With free space, it leaves the bytes of an undisturbed run.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.drills.nursery import Fault

SIZES = (0, 10, 300, 700, 1500, 3000, 9000, 30_000)
IN_A_ROW = 4


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_stage_on_a_full_disk_is_an_error_and_loses_nothing(trail: Any, budget: Any) -> None:
    chance, faults = random.Random(budget.seed), []
    for step, share in trail.shares(budget.disks, 2, chance):
        runs = 0
        while runs < share:
            trail.lay(step.before)
            faults_drawn: list[Fault] = []
            try:
                for _ in range(min(share - runs, IN_A_ROW)):
                    by_call = Fault("full", at=chance.randrange(step.calls))
                    faults_drawn.append(by_call if chance.random() < 0.6 else Fault("size", at=chance.choice(SIZES)))
                    end = trail.run(step, faults_drawn[-1])
                    runs += 1
                    assert "Traceback" not in end.output, end.output
                    assert end.code in (0, 5), end.output
                    errors = [line for line in end.output.splitlines() if line.startswith("error: ")]
                    assert bool(errors) == (end.code == 5), end.output
                trail.finish(step)
            except AssertionError as error:
                faults.append((step.title, faults_drawn, str(error)[-2000:]))
                print(faults[-1])
                break
        print(f"{step.title}: {runs} runs, {len(faults)} faults so far")
    assert faults == []
