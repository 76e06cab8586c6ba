"""Contract: if any byte of any file of an artefact is changed, cut, added or lost, `relabel verify` names the file.
Opening an artefact refuses a file that was cut, extended or lost. What is read without the pipeline (exports with
`verify=True`, checkpoints, fetched files) is refused or serves the same values.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.drills.damage import REFUSALS, WAYS, Target, damaged, files_of, read, targets
from tests.drills.trails import MORE

from relabel.core.errors import RelabelError
from relabel.stages.verify import verify
from relabel.store.manifest import MANIFEST, open_artefact

EXPORTS = ("lookup", "batches", "proxy_features")
"""Kinds whose reader compares the bytes only with `verify=True`."""
READ = (*EXPORTS, "checkpoint", "fetched")
"""Kinds that are read without the pipeline."""
RESIZED = ("truncate", "extend", "delete")


def outcome(target: Target, served: str, **options: Any) -> str:
    """Read a damaged artefact: `refused`, `same` values, or `changed` ones; other errors are raised."""
    try:
        return "same" if read(target, **options) == served else "changed"
    except (RelabelError, *REFUSALS):
        return "refused"


def opened(target: Target) -> str:
    """Open a damaged artefact by its manifest and the sizes of its files."""
    try:
        open_artefact(Path(target.name), target.kind)
    except RelabelError:
        return "refused"
    return "opened"


def problems() -> set[str]:
    """Return the files that `verify` names."""
    return {problem.file for problem in verify([Path("labels"), Path("data")]).problems}


def named(target: Target, path: Path, before: set[str]) -> list[str]:
    """Return mistakes of `verify` on a damaged file; `before` are the problems that it reported without damage."""
    if target.kind == "checkpoint" or (target.kind == "fetched" and not path.exists()):
        return []  # no manifest requires these files
    if path.name == MANIFEST and not path.exists() and not any(path.parent.glob("part-*.parquet")):
        return []  # without a manifest, only shards tell that there was an artefact
    files = problems() - before
    return [] if files == {str(path)} else [f"verify named {sorted(files)}"]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_changed_file_is_named_and_refused(trail: Any, budget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = next(step.before for step in trail.steps if step.stage == MORE)
    trail.lay(complete)
    monkeypatch.chdir(trail.here)
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    chance, faults, all_targets = random.Random(budget.seed), [], targets(Path())
    before = problems()
    served = {target: read(target) for target in all_targets if target.kind in READ}
    for number in range(budget.flips):
        target, way = all_targets[number % len(all_targets)], chance.choice(WAYS)
        path = chance.choice(files_of(Path(target.name), target.kind))
        times = path.stat()
        with damaged(path, way, chance):
            if way != "delete" and chance.random() < 0.5:  # as a faulty disk does, without a new time of modification
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            wrong = named(target, path, before)
            if target.kind in READ:
                found = outcome(target, served[target])
                wrong += ["the reader served other values"] if found == "changed" else []
            if target.kind in EXPORTS and way in RESIZED:
                default = outcome(target, served[target], verify=False)
                wrong += ["the default opening served other values"] if default == "changed" else []
            elif target.kind not in READ and way in RESIZED and opened(target) != "refused":
                wrong += [f"opened after {way}"]
        faults += [(str(path), way, line) for line in wrong]
    assert faults == []
