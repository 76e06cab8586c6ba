"""Contract: a run that is killed at any point, any number of times, ends with the bytes of an undisturbed run when
it is rerun.
"""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

SIGNALS = (signal.SIGKILL, signal.SIGTERM)


def drill(road: Any, folder: Path, chance: random.Random) -> int:
    """Kill a run at random points until it completes nevertheless; return the number of kills."""
    road.lay(folder)
    kills = 0
    for stage in road.stages:
        code = None
        while code != 0:
            process = road.start(folder, stage)
            try:
                _, output = process.communicate(timeout=chance.uniform(0.2, 1.0) * road.seconds[stage])
            except subprocess.TimeoutExpired:
                process.send_signal(chance.choice(SIGNALS))
                _, output = process.communicate()
            code = process.returncode
            assert code == 0 or -code in SIGNALS, output
            kills += code != 0
    return kills


def killed(road: Any, folder: Path, wanted: int, seed: int) -> int:
    """Repeat the drill until the requested number of kills; return their number."""
    chance, kills = random.Random(seed), 0
    while kills < wanted:
        kills += drill(road, folder, chance)
        road.compare(folder)
    return kills


def test_a_killed_run_ends_with_the_same_bytes(small: Any, tmp_path: Path) -> None:
    killed(small, tmp_path / "project", wanted=1, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_of_all_stages_killed_again_and_again_ends_with_the_same_bytes(
    full: Any, tmp_path: Path, budget: Any, tally: Any
) -> None:
    target = min(30, budget.kills // 10)
    tally["kills", "real processes"] += killed(full, tmp_path / "project", target, budget.seed)
