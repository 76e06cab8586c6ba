"""Contract: the examples run as they stand, learn, and train on the lookup's own labels."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from relabel.stages import Project
from relabel_train.lookup import open_lookup

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> object:
    """Import an example by name, as a script beside the others would be."""
    import torch

    torch.set_num_threads(1)  # so small a model is faster on one
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(name: str) -> ModuleType:
        for known in ("plain_loop", "hf_trainer"):
            monkeypatch.delitem(sys.modules, known, raising=False)
        return import_module(name)

    return load


def test_a_plain_loop_learns(example, small_project: Project) -> None:  # type: ignore[no-untyped-def]
    train = example("plain_loop").train
    for label in ("cbow", "cider"):
        lookup = open_lookup(small_project.layout.lookup("all", label))
        first, *_, last = train(lookup, epochs=6)
        assert last < 0.8 * first
    other = open_lookup(small_project.layout.lookup("all", "same_image"))
    assert train(other, epochs=1) != train(lookup, epochs=1)  # the labels take part


def test_siblings_are_no_negatives_and_less_relevant_ones_are_pushed_farther(example) -> None:  # type: ignore[no-untyped-def]
    import torch

    loss = example("plain_loop").graded_triplet
    similarity = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    relevance, eye = torch.tensor([[1.0, 0.25], [0.5, 1.0]]), torch.eye(2, dtype=torch.bool)
    rows, columns = (0.15 + 0.1) / 2, (0.1 + 0.15) / 2
    assert loss(similarity, relevance, eye).item() == pytest.approx(rows + columns)
    assert loss(similarity, relevance, torch.ones(2, 2, dtype=torch.bool)).item() == 0


@pytest.mark.skipif(not find_spec("accelerate"), reason="HF's Trainer needs accelerate")
def test_hf_trainer_learns(example, small_project: Project, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lookup = open_lookup(small_project.layout.lookup("all", "cider"))
    first, *_, last = example("hf_trainer").train(lookup, tmp_path, epochs=6, use_cpu=True, disable_tqdm=True)
    assert last < 0.8 * first
