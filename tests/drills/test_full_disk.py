"""Contract: a disk that becomes full at any point ends a run with exit code 5 and error lines, never a traceback.
With free space, the next run ends with the bytes of an undisturbed run.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

LIMIT = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, resource.RLIM_INFINITY))
"""
"""No file may grow beyond so many bytes: what writers in C++ meet as well."""

FULL = """
import errno, os
def on(real, name, state=[{0}]):
    def call(*args, **kwargs):
        state[0] -= 1
        if state[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))
        return real(*args, **kwargs)
    return call
for name in ("fsync", "replace", "mkdir"):
    setattr(os, name, on(getattr(os, name), name))
"""
"""From the n-th call on, each of these finds the disk full."""


def full_disk(road: Any, folder: Path, befores: list[str]) -> int:
    """Run every stage under each of `befores`, then with free space; return the number of runs that met a full disk."""
    road.lay(folder)
    times = 0
    for stage in road.stages:
        for before in befores:
            run = road.start(folder, stage, before)
            _, output = run.communicate(timeout=240)
            errors = [line for line in output.splitlines() if line.startswith("error: ")]
            assert "Traceback" not in output
            assert run.returncode in (0, 5), output
            assert bool(errors) == (run.returncode == 5)
            assert all("Free some space and run it again" in line for line in errors), output
            times += run.returncode == 5
        run = road.start(folder, stage)
        _, output = run.communicate(timeout=240)
        assert run.returncode == 0, output
    return times


def test_a_full_disk_is_an_error_and_loses_nothing(small: Any, tmp_path: Path) -> None:
    assert full_disk(small, tmp_path / "project", [FULL.format(25)]) == 1
    small.compare(tmp_path / "project")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_disk_that_is_full_at_random_writes_of_all_stages(full: Any, tmp_path: Path, budget: Any, tally: Any) -> None:
    chance = random.Random(budget.seed)
    limits = [LIMIT.format(size) for size in (0, 700, 9000)]
    instants = [FULL.format(chance.randrange(120)) for _ in range(3)]
    times = full_disk(full, tmp_path / "project", [*limits, *instants])
    tally["disks", "real processes"] += times
    assert times > 5
    full.compare(tmp_path / "project")
