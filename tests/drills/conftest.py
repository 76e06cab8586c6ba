"""Runs that drills disturb, the budget of a drill, and the counts that it reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.drills.nursery import Nursery
from tests.drills.roads import Road
from tests.drills.trails import STAGES, Trail, lay_inputs, possible

from relabel.corpus import Corpus


@dataclass(frozen=True)
class Budget:
    """Number of cases of each kind of drill, and their seed.

    Attributes
    ----------
    kills, flips, inputs, disks : int
        Killed runs, changed files, fuzzed inputs, and runs on a full disk.
    seed : int
    """

    kills: int
    flips: int
    inputs: int
    disks: int
    seed: int


@pytest.fixture(scope="session")
def budget(pytestconfig: pytest.Config) -> Budget:
    """Return the options `--drill-KIND` and `--drill-seed`."""
    return Budget(**{name: pytestconfig.getoption(f"drill_{name}") for name in Budget.__dataclass_fields__})


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Counter[tuple[str, str]]]:
    """Return an empty counter of cases by (kind of drill, subject); its counts go into `--drill-report`.

    ``tally["kills", "encode cider"] += 1``
    """
    counts: Counter[tuple[str, str]] = Counter()
    yield counts
    request.node.user_properties += [("drill", [kind, subject, n]) for (kind, subject), n in counts.items()]


@pytest.fixture(scope="session")
def captions(coco: Corpus) -> str:
    """Return the captions of the first 40 of COCO's val images as JSONL."""
    images = coco.images(["val"])
    rows = range(int(coco.indptr[images.start]), int(coco.indptr[images.start + 40]))
    lines = []
    for row in rows:
        image = coco.image_ids[coco.image[row]].removeprefix("coco:")
        caption = coco.caption_ids[row].removeprefix("coco:")
        line = {"caption_id": caption, "image_id": image, "split": "val", "text": coco.texts[row]}
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


@pytest.fixture(scope="session")
def road(captions: str, tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Return an undisturbed run."""
    made = Road(captions, tmp_path_factory.mktemp("road") / "project")
    made.complete(made.lay(made.undisturbed))
    return made


@pytest.fixture(scope="session")
def nursery(coco: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Nursery, Path]]:
    """Start a process that forks a child per run, and write a folder with the inputs of all stages."""
    pytest.importorskip("gensim")
    pytest.importorskip("accelerate")
    root = tmp_path_factory.mktemp("trail")
    ids = lay_inputs(coco, root / "here")
    (root / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
    process = Nursery(root / "ids.json")
    yield process, root
    process.close()


@pytest.fixture(scope="session")
def trail(nursery: tuple[Nursery, Path], pytestconfig: pytest.Config) -> Trail:
    """Return the trail of every stage, undisturbed."""
    path = Trail(*nursery, only=tuple(pytestconfig.getoption("drill_stage") or [""]))
    path.walk(possible(STAGES))
    return path
