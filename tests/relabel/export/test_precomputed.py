"""Contract: a block of a plan holds the value of Relevance.pairs for each pair, rounded to float32 once. Batches, ids,
`batches.json` and size are known before any pair is scored, and captions without labels are left out."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
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
from relabel.sources.relevance import Relevance
from relabel.sources.typical_costs import Cost
from relabel.store.artefact import Recipe, build
from relabel_train.precomputed import PrecomputedBatches, open_batches

SIZES = [5, 1, 6, 5, 2, 5, 5, 5, 3, 5]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.from_captions(
        Caption(f"c:{m:02d}-{k}", f"i:{m:02d}", "train" if m < 8 else "test", f"text {m} {k}")
        for m, n in enumerate(SIZES)
        for k in range(n)
    )


@dataclass(eq=False)
class CountingRelevance(Relevance):
    """Relevance of pairs: a function of both rows; counts its requests."""

    corpus: Corpus
    rows: range
    pooling: Pooling = "max"
    requests: Counter[tuple[tuple[int, ...], int]] = field(default_factory=Counter)

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        out = np.empty(len(captions))
        for p, caption in enumerate(captions.tolist()):
            own = tuple(references[p].tolist())
            self.requests[own, caption] += 1
            each = [np.sin(12.9898 * r + 78.233 * caption) for r in (own[:1] if pooling == "first" else own)]
            out[p] = np.mean(each) if pooling == "mean" else max(each)
        return out

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        raise AssertionError("blocks are computed from pairs")

    def query(self, text: str, captions: Rows) -> Scores:
        raise NotImplementedError


class Fake:
    """Source with the properties that a plan reads."""

    def __init__(self, kind: Any) -> None:
        self.spec = SourceSpec("fake", kind, (-1.0, 1.0), False, SourceParams)

    def is_pairwise(self) -> bool:
        return self.spec.kind == "pairs"


def work_of(corpus: Corpus, kind: str = "vectors", pooling: Any = "max", failed: Any = (), **given: Any) -> BatchesWork:
    """Return the work on a plan of the train split, of vectors or of a source that scores pair by pair."""
    params = ExportBatchesParams(**{"batch_size": 6, "epochs": 3, "drop_last": False, **given})
    values = np.random.default_rng(0).normal(size=(len(corpus), 48))
    values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    values[7] = 0  # a text without known words
    relevance: Any = VectorRelevance(corpus, range(len(corpus)), "max", values, lambda _: values[0])
    relevance = CountingRelevance(corpus, range(len(corpus))) if kind == "pairs" else relevance
    rows, source, none = corpus.rows(["train"]), Fake(kind), None
    split: Any = (source, rows, np.array(failed, np.int32), pooling, params, none, "fingerprint")
    return BatchesWork(corpus, "fake", "train", none, *split, lambda: relevance, SILENT)


def write(folder: Path, work: BatchesWork) -> tuple[PrecomputedBatches, dict[str, Any]]:
    inputs: Any = {"corpus": work.corpus.digest}
    recipe = Recipe("batches", "p", lambda: work.params.config, inputs, lambda w: make_steps(work.steps(w), w))
    manifest, _ = build(folder, recipe)
    return open_batches(folder), manifest.metadata


def check(plan: PrecomputedBatches, work: BatchesWork) -> None:
    """Compare a plan with Relevance.pairs, one pair per call."""
    corpus, pooling = work.corpus, work.pooling
    for batch in map(plan.__getitem__, range(len(plan))):
        size = len(batch.rows)
        assert (batch.relevance.shape, batch.relevance.dtype) == ((size, size), np.float32)
        for i, row in enumerate(batch.rows.tolist()):
            own = [row] if pooling == "first" else corpus.references([corpus.image[row]])[0]
            for j, caption in enumerate(batch.rows.tolist()):
                score = work.relevance.pairs(References.of([own]), np.array([caption], np.int32), pooling)[0]
                assert batch.relevance[i, j] == np.float32(score), (row, caption)
                assert batch.same_image[i, j] == (corpus.image[row] == corpus.image[caption])


def used(plan: PrecomputedBatches, epoch: int = 0) -> list[int]:
    return sorted(np.concatenate([plan.rows(n) for n in plan.epoch(epoch)]).tolist())


@pytest.mark.parametrize(
    ("pooling", "given", "batches"),
    [
        ("first", {}, 6),
        ("max", {}, 6),
        ("mean", {}, 6),
        ("max", {"batch_size": 1, "epochs": 1}, 34),
        ("max", {"batch_size": 500}, 1),
        ("max", {"batches_per_epoch": 2}, 2),
        ("max", {"batch_size": 34}, 1),
    ],
)
@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_blocks_equal_pairs_one_by_one(
    tmp_path: Path, corpus: Corpus, kind: str, pooling: str, given: Any, batches: int
) -> None:
    work = work_of(corpus, kind, pooling, **given)
    stated = work.describe(Cost(10.0))
    plan, metadata = write(tmp_path / "batches", work)
    assert [len(plan.epoch(e)) for e in range(plan.epochs)] == [batches] * plan.epochs
    assert metadata["batches"] == len(plan)
    if "batches_per_epoch" not in given:
        assert used(plan, plan.epochs - 1) == list(corpus.rows(["train"]))
    cells = len(plan) * plan.batch_size**2
    space = f"{4 * cells / 1e9:.3f} GB, {cells:,} pairs to score"
    assert stated.startswith(f"{len(plan)} batches of {plan.batch_size}, {space}")
    check(plan, work)


def test_plans_that_are_too_large_or_empty_are_refused_before_any_work(corpus: Corpus) -> None:
    work = work_of(corpus, epochs=1_000_000, max_bytes="1MB")
    with pytest.raises(UsageError, match="--max-bytes"):
        work.describe()
    assert "batches" not in vars(work)
    with pytest.raises(ValueError, match="max_bytes"):
        work_of(corpus, max_bytes="many")
    with pytest.raises(UsageError, match="34 captions fill no batch of 500"):
        work_of(corpus, batch_size=500, drop_last=True).describe()


def test_captions_with_nan_labels_are_left_out(tmp_path: Path, corpus: Corpus) -> None:
    first, rows = int(corpus.indptr[2]), set(corpus.rows(["train"]))
    # A caption beyond the references of its image loses its own labels alone.
    for pooling, failed, lost in (("max", first, 6), ("first", first, 1), ("max", first + 5, 1)):
        work = work_of(corpus, "vectors", pooling, failed=(failed, len(rows) + 1), epochs=1)
        plan, metadata = write(tmp_path / f"{pooling}{failed}", work)
        assert metadata["left_out"] == lost
        assert set(used(plan)) == rows - set(range(failed, failed + lost))


def test_ids_and_plan_json(tmp_path: Path, corpus: Corpus) -> None:
    plan, metadata = write(tmp_path / "batches", work_of(corpus))
    for number in (0, 7):
        rows = plan.rows(number)
        captions, images = plan.names(number)
        assert captions == [corpus.caption_ids[r] for r in rows]
        assert images == [corpus.image_ids[corpus.image[r]] for r in rows]
    about = plan.about
    assert (about.pooling, about.bounds, about.fingerprint) == ("max", (-1, 1), "fingerprint")
    assert (metadata["sampler"], metadata["pooling"], metadata["bounds"]) == (
        about.sampler,
        about.pooling,
        list(about.bounds),
    )
    with pytest.raises(IndexError, match="no batch 18"):
        plan[18]
    with pytest.raises(ValueError, match="epoch 3 is not planned"):
        plan.epoch(3)
    with pytest.raises(FileNotFoundError, match="relabel export batches"):
        open_batches(tmp_path)


def test_spawned_workers_read_the_same_batches(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("relabel.export.precomputed._SHARD", 4 * 36 * 5)
    plan, _ = write(tmp_path / "batches", work_of(corpus))
    expected = [plan[n] for n in range(len(plan))]  # the files are mapped before the workers start
    earlier = set(multiprocessing.active_children())  # processes of other tests
    batches = list(torch.utils.data.DataLoader(plan, batch_size=None, num_workers=1, multiprocessing_context="spawn"))
    for batch, (rows, relevance, same_image) in zip(batches, expected, strict=True):
        assert (batch.rows.dtype, batch.relevance.dtype) == (torch.int32, torch.float32)
        assert batch.rows.tolist() == rows.tolist()
        assert np.array_equal(batch.relevance.numpy(), relevance)
        assert np.array_equal(batch.same_image.numpy(), same_image)
    shares = [plan.epoch(1, rank, 4, even=False) for rank in range(4)]
    assert sorted(n for share in shares for n in share) == plan.epoch(1)
    assert set(multiprocessing.active_children()) <= earlier
