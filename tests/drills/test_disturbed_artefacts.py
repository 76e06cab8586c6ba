"""Contract: each stage that was disturbed at random points and is then run undisturbed leaves the bytes of an
undisturbed run, and no process.

Killed or interrupted, Ctrl-C is exit code 130 and one line. Where the disk is full from any call on, or files are
limited in size, the stage ends with exit code 0 or 5 and an error line, never a traceback.

If any byte of any file of an artefact is changed, cut, added or lost, `relabel verify` names the file. Opening an
artefact refuses a file that was cut, extended or lost. What is read without the pipeline (exports with `verify=True`,
checkpoints, fetched files) is refused or serves the same values.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drills.damage import EXPORTS, READERS, damaged, served, targets
from tests.drills.mutation import Mutator
from tests.drills.nursery import Fault, RunResult
from tests.drills.trails import MORE, Step, Trail

from relabel.stages.verify import verify
from relabel.store.manifest import MANIFEST
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


def problems() -> set[str]:
    """Return the files that `verify` names."""
    return {problem.file for problem in verify([Path("labels"), Path("data")]).problems}


def required(kind: str, path: Path) -> bool:
    """Return whether a manifest requires the file, or only shards tell that there was an artefact."""
    if kind == "checkpoint" or path.exists():
        return kind != "checkpoint"
    return kind != "fetched" and (path.name != MANIFEST or any(path.parent.glob("part-*.parquet")))


def mistakes(kind: str, folder: Path, path: Path, body: bytes, before: set[str], good: Any) -> Iterator[str]:
    """Yield what is wrong with a damaged file that held `body`, beside problems `before` and readers' `good` values."""
    named = problems() - before
    if required(kind, path) and named != {str(path)}:
        yield f"verify named {sorted(named)}"
    now = path.read_bytes() if path.exists() else b""
    if kind in READERS and served(kind, folder) not in (None, good):
        yield "the reader served other values"
    cut_or_extended = body.startswith(now) or now.startswith(body)
    if kind in EXPORTS and cut_or_extended and served(kind, folder, verify=False) not in (None, good):
        yield "the default opening served other values"
    if kind not in READERS and len(now) != len(body) and served(kind, folder) is not None:
        yield "opened"


def test_a_changed_file_is_named_and_refused(trail: Trail, budget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trail.lay(next(step.before for step in trail.steps if step.stage == MORE))
    monkeypatch.chdir(trail.here)
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    mutator, faults, all_targets = Mutator(str(budget.seed)), [], targets(Path())
    before = problems()
    good = {folder: served(kind, folder) for kind, folder in all_targets if kind in READERS}
    assert None not in good.values()
    for number in range(budget.flips):
        kind, folder = all_targets[number % len(all_targets)]
        files = folder.glob("*.pt") if kind == "checkpoint" else folder.rglob("*")
        path = mutator.rng.choice(sorted(file for file in files if file.is_file()))
        state, body = path.stat(), path.read_bytes()
        with damaged(path, mutator):
            if path.exists() and mutator.rng.random() < 0.5:  # as a faulty disk does: the times stay
                os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
            wrong = list(mistakes(kind, folder, path, body, before, good.get(folder)))
        faults += [(str(path), line) for line in wrong]
    assert faults == []
