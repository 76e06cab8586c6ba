"""Contract: a plan may have any batch size, and workers read its batches as this process does."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tests.relabel.export.plan.fixtures import CountingRelevance, check, outline, vectors, write

from relabel.corpus import Corpus
from relabel.export.plan import spec
from relabel.sources.base import Kind
from relabel_train.plan import open_plan


@pytest.mark.parametrize("given", [{"batch_size": 1}, {"batch_size": 500}, {"batches": 2}, {"batch_size": 34}])
@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_odd_sizes(tmp_path: Path, corpus: Corpus, kind: Kind, given: dict[str, int]) -> None:
    relevance = CountingRelevance(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    plan, manifest = write(tmp_path / "plan", outline(corpus, kind, **given), relevance)
    captions = len(corpus.rows(["train"]))
    assert [len(plan.epoch(e)) for e in range(3)] == [
        given.get("batches", -(-captions // given.get("batch_size", 6)))
    ] * 3
    assert manifest.facts["batches"] == len(plan)
    check(plan, corpus, relevance, "max")


def test_invalid_plans_are_refused(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(FileNotFoundError, match="relabel export plan"):
        open_plan(tmp_path)
    plan, _ = write(tmp_path / "plan", outline(corpus, "vectors"), vectors(corpus))
    with pytest.raises(IndexError, match="no batch 18; the plan has 18"):
        plan[18]
    with pytest.raises(ValueError, match="epoch 3 is not planned"):
        plan.epoch(3)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_the_same_batches_as_the_parent(
    tmp_path: Path, corpus: Corpus, start: Literal["fork", "spawn"], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(spec, "_SHARD", 4 * 36 * 5)
    plan, _ = write(tmp_path / "plan", outline(corpus, "vectors"), vectors(corpus))
    expected = [plan[n] for n in range(len(plan))]  # the files are mapped before the workers start
    earlier = set(multiprocessing.active_children())  # processes of other tests
    loader = torch.utils.data.DataLoader(plan, batch_size=None, num_workers=1, multiprocessing_context=start)
    batches = list(loader)
    assert len(batches) == len(expected)
    for batch, (rows, relevance, same_image) in zip(batches, expected, strict=True):
        assert (batch.rows.dtype, batch.relevance.dtype) == (torch.int32, torch.float32)
        assert batch.rows.tolist() == rows.tolist()
        assert np.array_equal(batch.relevance.numpy(), relevance)
        assert np.array_equal(batch.same_image.numpy(), same_image)
    shares = [plan.epoch(1, rank, 4, even=False) for rank in range(4)]
    assert sorted(n for share in shares for n in share) == plan.epoch(1)
    assert set(multiprocessing.active_children()) <= earlier
