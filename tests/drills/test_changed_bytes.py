"""Contract: if any byte of any file of an artefact is changed, cut, added or lost, `relabel verify` names the file.
Opening an artefact refuses a file that was cut, extended or lost. What is read without the pipeline (exports with
`verify=True`, checkpoints, fetched files) is refused or serves the same values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drills.damage import EXPORTS, READERS, damaged, served, targets
from tests.drills.mutation import Mutator
from tests.drills.trails import MORE, Trail

from relabel.stages.verify import verify
from relabel.store.manifest import MANIFEST


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


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(2400)
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
