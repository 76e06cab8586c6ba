"""Runs that drills disturb, and the budget of a drill."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.drills.nursery import nursery
from tests.drills.trails import Trail, lay_inputs


@pytest.fixture(scope="session")
def budget(pytestconfig: pytest.Config) -> SimpleNamespace:
    """Return the options `--drill-KIND`, the number of cases of a kind, and `--drill-seed`."""
    names = ("kills", "flips", "inputs", "disks", "seed")
    return SimpleNamespace(**{name: pytestconfig.getoption(f"drill_{name}") for name in names})


@pytest.fixture(scope="session")
def trail(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Trail]:
    """Yield the trail of every stage, undisturbed."""
    pytest.importorskip("gensim")
    pytest.importorskip("accelerate")
    root = tmp_path_factory.mktemp("trail")
    lay_inputs(root / "here")
    with nursery() as run_stage:
        trail = Trail(run_stage, root, tuple(pytestconfig.getoption("drill_stage") or [""]))
        trail.walk()
        yield trail
