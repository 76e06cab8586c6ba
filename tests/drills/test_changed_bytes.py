"""Contract: if any byte of any file of an artefact is changed, cut, added or lost, `relabel verify` names the file.
A reader refuses it or serves the same values, and its stage rebuilds the same bytes. By default, the readers of exports
refuse only what was cut, extended or lost.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.drills.damage import REFUSALS, WAYS, Readers, Target, damaged, files_of, targets
from tests.drills.trails import MORE, comparable

from relabel.core.errors import RelabelError
from relabel.stages.verify import verify
from relabel.store.manifest import MANIFEST

HEALED = 20
"""Of so many changed files one is healed by its stage as well."""
EXPORTS = ("lookup", "plan", "proxy_features")
"""Kinds whose reader compares the bytes only with `verify=True`."""
RESIZED = ("truncate", "extend", "delete")


def outcome(readers: Readers, target: Target, served: str, **options: Any) -> str:
    """Read a damaged artefact: `refused`, `same` values, or `changed` ones; other errors are raised."""
    try:
        return "same" if readers(target, **options) == served else "changed"
    except (RelabelError, *REFUSALS):
        return "refused"


def problems() -> set[str]:
    """Return the files that `verify` names."""
    return {problem.file for problem in verify([Path("labels"), Path("data")], Path("data")).problems}


def named(target: Target, path: Path, before: set[str]) -> list[str]:
    """Return mistakes of `verify` on a damaged file; `before` are the problems that it reported without damage."""
    if target.kind == "checkpoint" or (target.kind == "fetched" and not path.exists()):
        return []  # no manifest requires these files
    files = problems() - before
    return [] if files == {str(path)} else [f"verify named {sorted(files)}"]


def healed(trail: Any, target: Target, wanted: dict[str, bytes]) -> list[str]:
    """Run the stage of an artefact; return the differences afterwards."""
    step = next(s for s in reversed(trail.steps) if s.stage != MORE and makes(s, target))
    end = trail.run(step)
    if end.code != 0:
        return [] if "error: " in end.output and "Traceback" not in end.output else [f"{step.title}: {end.output}"]
    results = comparable(trail.here)
    return [f"{step.title} left {n} otherwise" for n in wanted if results.get(n) != wanted[n]]


def makes(step: Any, target: Target) -> bool:
    """Return whether a step makes an artefact."""
    file = target.name + ("/log.jsonl" if target.kind == "checkpoint" else f"/{MANIFEST}")
    if target.kind == "fetched":
        return bool(step.stage[0] == "fetch")
    before, after = step.before / file, step.after / file
    return after.exists() and not (before.exists() and before.read_bytes() == after.read_bytes())


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_changed_file_is_named_refused_and_made_again(
    trail: Any, budget: Any, tally: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = next(step.before for step in trail.steps if step.stage == MORE)
    trail.lay(complete)
    monkeypatch.chdir(trail.here)
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    chance, readers, faults = random.Random(budget.seed), Readers(), []
    expected, all_targets = comparable(trail.here), targets(Path())
    before = problems()
    served = {target: readers(target) for target in all_targets}
    for number in range(budget.flips):
        target, way = all_targets[number % len(all_targets)], chance.choice(WAYS)
        path = chance.choice(files_of(Path(target.name), target.kind))
        times = path.stat()
        with damaged(path, way, chance):
            if way != "delete" and chance.random() < 0.5:  # as a faulty disk does, without a new time of modification
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            try:
                wrong = named(target, path, before)
                read = outcome(readers, target, served[target])
                wrong += ["the reader served other values"] if read == "changed" else []
                tally["flips", target.subject] += 1
                tally["flips: full read", read] += 1
                if target.kind in EXPORTS and way in RESIZED:
                    default = outcome(readers, target, served[target], verify=False)
                    wrong += ["the default opening served other values"] if default == "changed" else []
                if number % HEALED == 0 and not wrong:
                    wrong += healed(trail, target, expected)
                    tally["heals", target.subject] += 1
            except Exception as error:
                wrong = [repr(error)]
        faults += [(str(path), way, line) for line in wrong]
        for fault in faults[len(faults) - len(wrong) :]:
            print(fault)
        if wrong:
            trail.lay(complete)
            os.chdir(trail.here)
    assert faults == []
