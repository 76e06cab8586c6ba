"""Contract: a run whose Dask workers are killed, of a local cluster or of a separate scheduler, ends with the bytes
of a run without workers or with exit code 5 (3 if no worker is left). After exit code 5, the next run ends with
these bytes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.drills.nursery import RunResult
from tests.drills.trails import Step

STAGES = (("encode", "--label", "cider", "--split", "all"), ("neighbours", "--label", "cider"))
PER_RUN = 50
"""Kills of the budget for which one run loses workers."""


def workers_below(process: psutil.Process) -> list[psutil.Process]:
    """List Dask's worker processes by the command line of spawned processes."""
    with suppress(psutil.NoSuchProcess):
        below = process.children(recursive=True)
        return [p for p in below if any("spawn_main" in word for word in _command(p))]
    return []


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


@contextmanager
def losing(workers: Callable[[], list[psutil.Process]], chance: random.Random) -> Iterator[list[int]]:
    """Kill workers at random points during the block; yield the list of killed ones."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < 3 and not over.wait(chance.uniform(0.2, 2.5)):
            alive = [p for p in workers() if p.pid not in killed]
            if alive:
                killed.append(chance.choice(alive).pid)
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def check(trail: Any, step: Step, end: RunResult) -> None:
    """Check the contract for a disturbed run and the following one."""
    gone = end.code == 3 and "no worker came" in end.output  # `dask worker` ends if its process is killed as it starts
    assert end.code in (0, 5) or gone, end.output
    assert "Traceback" not in end.output, end.output
    assert end.orphans == []
    trail.finish(step)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_workers_of_a_local_cluster_are_lost(trail: Any, budget: Any, tally: Any) -> None:
    chance = random.Random(budget.seed)
    steps = [step for step in trail.steps if step.stage in STAGES]
    for number in range(max(2, budget.kills // PER_RUN)):
        step = steps[number % len(steps)]
        trail.lay(step.before)
        nursery = psutil.Process(trail.nursery.pid)
        with losing(lambda nursery=nursery: workers_below(nursery), chance) as killed:  # type: ignore[misc]
            end = trail.nursery.run(trail.here, [*step.stage, "--threads", "2", "--workers", "2"])
        tally["workers", f"lost in {step.title} --workers 2"] += len(killed)
        tally["workers", f"runs with exit code {end.code}"] += 1
        check(trail, step, end)


@contextmanager
def scheduler(folder: Path, count: int) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Start a scheduler and workers from the command line; yield its address and the workers."""
    env, file = os.environ | {"OMP_NUM_THREADS": "1"}, folder.with_suffix(".scheduler.json")
    start = lambda module, *options: subprocess.Popen(  # noqa: E731
        [sys.executable, "-m", f"distributed.cli.{module}", *options, "--scheduler-file", str(file)],
        cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    file.unlink(missing_ok=True)
    started = [start("dask_scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1")]
    try:
        started += [
            start("dask_worker", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1") for _ in range(count)
        ]
        while not file.exists():
            time.sleep(0.05)
        import json

        yield json.loads(file.read_text())["address"], [psutil.Process(p.pid) for p in started[1:]]
    finally:
        for process in reversed(started):
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_workers_of_a_scheduler_elsewhere_are_lost(trail: Any, budget: Any, tally: Any) -> None:
    chance = random.Random(budget.seed)
    steps = [step for step in trail.steps if step.stage in STAGES]
    for number in range(max(2, budget.kills // PER_RUN)):
        step = steps[number % len(steps)]
        trail.lay(step.before)
        with scheduler(trail.here, 2) as (address, nannies):
            below = lambda nannies=nannies: [p for n in nannies for p in workers_below(n)]  # type: ignore[misc]  # noqa: E731
            with losing(below, chance) as killed:
                end = trail.nursery.run(trail.here, [*step.stage, "--threads", "1", "--scheduler", address])
        tally["workers", f"lost in {step.title} --scheduler"] += len(killed)
        tally["workers", f"runs with exit code {end.code}"] += 1
        check(trail, step, end)
