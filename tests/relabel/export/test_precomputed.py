"""Contract: a block of a plan holds the value of Relevance.pairs for each pair, rounded to float32 once and within the
bounds of the source. Batches, ids, `batches.json` and size are known before any pair is scored, and captions without
labels are left out. The sampler of a plan deals out its batches as the samplers of a training do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.encodings import make_steps

from relabel.core.errors import UsageError
from relabel.core.runtime import SILENT
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.export.params import ExportBatchesParams
from relabel.export.precomputed import BatchesWork
from relabel.sources.base import SourceParams, SourceSpec
from relabel.sources.cosine import VectorRelevance
from relabel.sources.typical_costs import Cost
from relabel.store.artefact import Recipe, build
from relabel_train.precomputed import PlanSampler, PrecomputedBatches, open_batches

CAPTIONS = [(m, k) for m, n in enumerate([5, 1, 6, 5, 2, 5, 5, 5, 3, 5]) for k in range(n)]
CORPUS = Corpus.from_captions(
    Caption(f"c:{m:02d}-{k}", f"i:{m:02d}", "train" if m < 8 else "test", f"text {m} {k}") for m, k in CAPTIONS
)
TRAIN = list(CORPUS.rows(["train"]))


class CountingRelevance(VectorRelevance):
    """Relevance of vectors that counts the pairs it scores, and refuses blocks."""

    requests: Counter[tuple[tuple[int, ...], int]]

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        self.requests.update((tuple(references[p].tolist()), c) for p, c in enumerate(captions.tolist()))
        return super().pairs(references, captions, pooling)

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        raise AssertionError("blocks are computed from pairs")


def work_of(kind: str = "vectors", pooling: Any = "max", failed: Any = (), **given: Any) -> BatchesWork:
    """Return the work on a plan of the train split, of vectors or of a source that scores pair by pair."""
    params = ExportBatchesParams(**{"batch_size": 6, "epochs": 3, "drop_last": False, **given})
    values = np.random.default_rng(0).normal(size=(len(CORPUS), 48))
    values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    values[7] = 0  # a text without known words
    relevance = CountingRelevance(CORPUS, range(len(CORPUS)), "max", values, lambda _: values[0])
    relevance.requests = Counter()
    spec: Any = SourceSpec("fake", kind, (-1.0, 1.0), False, SourceParams)  # type: ignore[arg-type]
    source: Any = SimpleNamespace(spec=spec, is_pairwise=lambda: kind == "pairs")
    rows, none = CORPUS.rows(["train"]), None
    split: Any = (source, rows, np.array(failed, np.int32), pooling, params, none, "fingerprint")
    return BatchesWork(CORPUS, "fake", "train", none, *split, lambda: relevance, SILENT)


def write(folder: Path, work: BatchesWork) -> tuple[PrecomputedBatches, dict[str, Any]]:
    inputs: Any = {"corpus": CORPUS.digest}
    recipe = Recipe("batches", "p", lambda: work.params.config, inputs, lambda w: make_steps(work.steps(w), w))
    manifest, _ = build(folder / "batches", recipe)
    return open_batches(folder / "batches"), manifest.metadata


def used(plan: PrecomputedBatches) -> list[int]:
    """Return the rows of the last epoch."""
    return sorted(np.concatenate([plan.rows(n) for n in plan.epoch(plan.epochs - 1)]).tolist())


PLANS: list[Any] = [("first", {}, 6), ("max", {}, 6), ("mean", {}, 6), ("max", {"batch_size": 1, "epochs": 1}, 34)]
PLANS += [("max", {"batch_size": 500}, 1), ("max", {"batches_per_epoch": 2}, 2), ("max", {"batch_size": 34}, 1)]


@pytest.mark.parametrize(("pooling", "given", "batches"), PLANS)
@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_blocks_equal_pairs_one_by_one(tmp_path: Path, kind: str, pooling: Any, given: Any, batches: int) -> None:
    work = work_of(kind, pooling, **given)
    stated = work.describe(Cost(10.0))
    assert not work.relevance.requests  # type: ignore[attr-defined]
    plan, metadata = write(tmp_path, work)
    assert [len(plan.epoch(e)) for e in range(plan.epochs)] == [batches] * plan.epochs
    assert metadata["batches"] == len(plan)
    assert "batches_per_epoch" in given or used(plan) == TRAIN
    cells = len(plan) * plan.batch_size**2
    size = f"{len(plan)} batches of {plan.batch_size}, {4 * cells / 1e9:.3f} GB, {cells:,} pairs to score"
    assert stated.startswith(size)
    for batch in map(plan.__getitem__, range(len(plan))):
        expected = np.empty((len(batch.rows), len(batch.rows)), np.float32)
        for i, row in enumerate(batch.rows.tolist()):
            own = [row] if pooling == "first" else CORPUS.references([CORPUS.image[row]])[0]
            for j in range(len(batch.rows)):
                expected[i, j] = work.relevance.pairs(References.of([own]), batch.rows[j : j + 1], pooling)[0]
        assert batch.relevance.dtype == np.float32
        np.testing.assert_array_equal(batch.relevance, expected.clip(-1, 1))
        image = CORPUS.image[batch.rows]
        np.testing.assert_array_equal(batch.same_image, image[:, None] == image)


def test_plans_that_are_too_large_or_empty_are_refused_before_any_work() -> None:
    work = replace(work_of(epochs=1_000_000, batch_size=34), most_bytes=10**6)
    with pytest.raises(UsageError, match="a lookup, because it is smaller"):
        work.describe()
    assert "batches" not in vars(work)
    with pytest.raises(UsageError, match="34 captions are too few for a batch of 500"):
        work_of(batch_size=500, drop_last=True).describe()


# A caption beyond the references of its image loses its own labels alone.
@pytest.mark.parametrize(("pooling", "offset", "lost"), [("max", 0, 6), ("first", 0, 1), ("max", 5, 1)])
def test_captions_with_nan_labels_are_left_out(tmp_path: Path, pooling: str, offset: int, lost: int) -> None:
    failed = int(CORPUS.indptr[2]) + offset
    plan, metadata = write(tmp_path, work_of("vectors", pooling, failed=(failed, len(TRAIN) + 1)))
    assert metadata["left_out"] == lost
    assert used(plan) == [row for row in TRAIN if not failed <= row < failed + lost]


def test_ids_and_plan_json(tmp_path: Path) -> None:
    plan, _ = write(tmp_path, work_of())
    for number in (0, 7):
        rows = plan.rows(number)
        images = [CORPUS.image_ids[CORPUS.image[r]] for r in rows]
        assert plan.names(number) == ([CORPUS.caption_ids[r] for r in rows], images)
    assert (plan.about.pooling, plan.about.bounds, plan.about.fingerprint) == ("max", (-1, 1), "fingerprint")
    with pytest.raises(IndexError, match="no batch 18"):
        plan[18]
    with pytest.raises(ValueError, match="epoch 3 is not planned"):
        plan.epoch(3)


@pytest.mark.slow
def test_spawned_workers_read_the_same_batches(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    plan, _ = write(tmp_path, replace(work_of(), shard_bytes=4 * 36 * 5))
    expected = [plan[n] for n in range(len(plan))]  # the files are mapped before the workers start
    batches = list(torch.utils.data.DataLoader(plan, batch_size=None, num_workers=1, multiprocessing_context="spawn"))
    for batch, one in zip(batches, expected, strict=True):
        assert (batch.rows.dtype, batch.relevance.dtype) == (torch.int32, torch.float32)
        assert all(np.array_equal(found.numpy(), array) for found, array in zip(batch, one, strict=True))


def test_the_sampler_of_a_plan_has_every_epoch_and_equal_shares(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    plan, _ = write(tmp_path, work_of())  # 3 epochs of 5 complete batches and one of 4
    sampler = PlanSampler(plan)
    loader = torch.utils.data.DataLoader(plan, batch_size=None, sampler=sampler, collate_fn=lambda batch: batch)
    for epoch in (0, 1, 2, 0):
        found = [batch.rows.tolist() for batch in loader]
        assert found == [plan.rows(n).tolist() for n in plan.epoch(epoch)]
    loader.sampler.set_epoch(2)  # type: ignore[attr-defined]
    assert list(sampler) == plan.epoch(2)
    every = [list(PlanSampler(plan).shard(rank, 4, even=False)) for rank in range(4)]
    assert sorted(n for share in every for n in share) == plan.epoch(0)
    shards = [PlanSampler(plan).shard(rank, 2) for rank in range(2)]
    assert [list(shard) for shard in shards] == [plan.epoch(0)[0:4:2], plan.epoch(0)[1:4:2]]
    assert [len(shard) for shard in shards] == [2, 2]
    with pytest.raises(ValueError, match="5 full batches, for 6 processes"):
        sampler.shard(0, 6)
