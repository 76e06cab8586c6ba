"""Runs that drills disturb, and the budget of a drill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.drills.nursery import Nursery
from tests.drills.trails import STAGES, Trail, lay_inputs, possible

from relabel.corpus import Corpus


@pytest.fixture(scope="session")
def budget(pytestconfig: pytest.Config) -> SimpleNamespace:
    """Return the options `--drill-KIND`, the number of cases of a kind, and `--drill-seed`."""
    names = ("kills", "flips", "inputs", "disks", "seed")
    return SimpleNamespace(**{name: pytestconfig.getoption(f"drill_{name}") for name in names})


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
