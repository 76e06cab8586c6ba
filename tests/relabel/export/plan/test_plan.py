"""Contract: a plan's blocks are what Relevance.pairs gives for each pair, rounded to float32 once, whatever BLAS does;
a distinct pair is scored once a plan; a killed run ends in the same bytes; the size is known to the byte before."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from relabel.core.errors import PartialError, UsageError
from relabel.core.progress import SILENT
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.export.plan import blocks, spec
from relabel.export.plan import estimate as plan_estimate
from relabel.export.plan.blocks import Pairs, block_of
from relabel.export.plan.build import PlanTasks
from relabel.export.plan.estimate import check_disk_space, check_size_limit, estimate
from relabel.export.plan.params import ExportPlanParams
from relabel.export.plan.spec import PlanSpec, Shape
from relabel.sources.base import Kind, SourceParams, SourceSpec
from relabel.sources.cosine import VectorRelevance
from relabel.sources.relevance import Relevance
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, Manifest
from relabel.store.tasks import make_all
from relabel.store.workdir import Work
from relabel_train.batches import Plan, open_plan

SIZES = [5, 1, 6, 5, 2, 5, 5, 5, 3, 5]
POOLINGS: list[Pooling] = ["paired", "max", "mean"]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    splits = ["train"] * 8 + ["test"] * 2
    return Corpus.from_captions(
        Caption(f"c:{m:02d}-{k}", f"i:{m:02d}", splits[m], f"text {m} {k}")
        for m, n in enumerate(SIZES)
        for k in range(n)
    )


@dataclass(eq=False)
class Counting(Relevance):
    """Pair by pair: a number of both rows, pooled by max; remembers what it was asked, and can be interrupted."""

    corpus: Corpus
    rows: range
    pooling: Pooling = "max"
    stop_at: int | None = None
    asked: Counter[tuple[tuple[int, ...], int]] = field(default_factory=Counter)
    largest: int = 0

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        self.largest = max(self.largest, len(captions))
        out = np.empty(len(captions))
        for p, caption in enumerate(captions.tolist()):
            if self.stop_at is not None and self.asked.total() >= self.stop_at:
                raise KeyboardInterrupt
            own = tuple(references[p].tolist())
            self.asked[own, caption] += 1
            each = [np.sin(12.9898 * r + 78.233 * caption) for r in (own[:1] if pooling == "paired" else own)]
            out[p] = np.mean(each) if pooling == "mean" else max(each)
        return out

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        raise AssertionError("a pairs source is asked for pairs")

    def query(self, text: str, captions: Rows) -> Scores:
        raise NotImplementedError


class Fake:
    """What an outline asks of a source."""

    def __init__(self, kind: Kind) -> None:
        self.spec = SourceSpec("fake", kind, (-1.0, 1.0), False, 1, SourceParams)

    def is_pairwise(self) -> bool:
        return self.spec.pairwise


def vectors(corpus: Corpus) -> VectorRelevance:
    values = np.random.default_rng(0).normal(size=(len(corpus), 48))
    values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    values[7] = 0  # nothing known of the text
    return VectorRelevance(corpus, range(len(corpus)), "max", values, lambda _: values[0])


def outline(
    corpus: Corpus, kind: Kind = "pairs", pooling: Pooling = "max", failed: tuple[int, ...] = (), **given: Any
) -> PlanSpec:
    params = ExportPlanParams(**{"batch_size": 6, "epochs": 3, "drop_last": False, **given})
    rows = corpus.rows(["train"])
    source: Any = Fake(kind)
    none: Any = None
    return PlanSpec(
        corpus, "fake", "train", None, source, rows, np.array(failed, np.int32), pooling, params, none, "fingerprint"
    )


def write(folder: Path, made: PlanSpec, relevance: Relevance) -> tuple[Plan, Manifest]:
    artefact = ArtefactSpec("plan", "p", made.params.semantic, {"corpus": made.corpus.digest})
    tasks = PlanTasks(made, lambda: relevance)
    manifest, _ = build(folder, artefact, lambda work: make_all(tasks, work, SILENT))
    return open_plan(folder), manifest


def check(plan: Plan, corpus: Corpus, relevance: Relevance, pooling: Pooling) -> None:
    """Hold a plan against Relevance.pairs, one pair a call."""
    for batch in map(plan.__getitem__, range(len(plan))):
        size = len(batch.rows)
        assert (batch.relevance.shape, batch.relevance.dtype) == ((size, size), np.float32)
        for i, row in enumerate(batch.rows.tolist()):
            own = [row] if pooling == "paired" else corpus.references([corpus.image[row]])[0]
            for j, caption in enumerate(batch.rows.tolist()):
                score = relevance.pairs(References.of([own]), np.array([caption], np.int32), pooling)[0]
                assert batch.relevance[i, j] == np.float32(score), (row, caption)
                assert batch.same_image[i, j] == (corpus.image[row] == corpus.image[caption])


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file() and p.name != "manifest.json"}


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_blocks_equal_pairs_one_by_one(tmp_path: Path, corpus: Corpus, kind: Kind, pooling: Pooling) -> None:
    relevance = Counting(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    plan, _ = write(tmp_path / "plan", outline(corpus, kind, pooling), relevance)
    assert len(plan) == 3 * 6
    assert sorted(np.concatenate([plan.rows(n) for n in plan.epoch(1)]).tolist()) == list(corpus.rows(["train"]))
    check(plan, corpus, relevance, pooling)


@pytest.mark.parametrize("given", [{"batch_size": 1}, {"batch_size": 500}, {"batches": 2}, {"batch_size": 34}])
@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_odd_sizes(tmp_path: Path, corpus: Corpus, kind: Kind, given: dict[str, int]) -> None:
    relevance = Counting(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    plan, manifest = write(tmp_path / "plan", outline(corpus, kind, **given), relevance)
    captions = len(corpus.rows(["train"]))
    assert [len(plan.epoch(e)) for e in range(3)] == [
        given.get("batches", -(-captions // given.get("batch_size", 6)))
    ] * 3
    assert manifest.facts["batches"] == len(plan)
    check(plan, corpus, relevance, "max")


def test_a_batch_larger_than_the_corpus_is_refused_where_a_short_one_is_left_out(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="34 captions fill no batch of 500"):
        check_size_limit(outline(corpus, batch_size=500, drop_last=True))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_distinct_pair_is_scored_once(
    tmp_path: Path, corpus: Corpus, pooling: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_PART", 60)
    monkeypatch.setattr(blocks, "_STEP", 7)
    relevance = Counting(corpus, range(len(corpus)))
    made = outline(corpus, "pairs", pooling, epochs=6)
    plan, _ = write(tmp_path / "plan", made, relevance)
    expected, cells = set(), 0
    for number in range(len(plan)):
        rows = plan.rows(number).tolist()
        for row in rows:
            own = (row,) if pooling == "paired" else tuple(corpus.references([corpus.image[row]])[0].tolist())
            expected |= {(own, caption) for caption in rows}
            cells += len(rows)
    assert relevance.asked == Counter(dict.fromkeys(expected, 1))
    assert cells > 1.3 * len(expected)  # so that there was something to share
    assert relevance.largest <= 7
    assert not list((tmp_path / "plan").glob("pairs-*"))
    assert Pairs(corpus, made.batches, pooling).distinct == len(expected)
    assert len(Pairs(corpus, made.batches, pooling).tasks) > 5


@pytest.mark.parametrize("stop_at", [0, 1, 100, 212])
def test_a_killed_run_goes_on_to_the_same_bytes(
    tmp_path: Path, corpus: Corpus, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_PART", 60)
    monkeypatch.setattr(spec, "_SHARD", 4 * 36 * 5)  # five batches
    whole = Counting(corpus, range(len(corpus)))
    write(tmp_path / "whole", outline(corpus), whole)
    assert whole.asked.total() > 212
    first = Counting(corpus, range(len(corpus)), stop_at=stop_at)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "killed", outline(corpus), first)
    assert not (tmp_path / "killed").exists()
    second = Counting(corpus, range(len(corpus)))
    write(tmp_path / "killed", outline(corpus), second)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    again = set(first.asked) & set(second.asked)
    assert len(again) <= 66  # no more than the part that was being scored


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_between_any_two_files_goes_on(
    tmp_path: Path, corpus: Corpus, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_PART", 100)
    monkeypatch.setattr(spec, "_SHARD", 4 * 36 * 8)
    write(tmp_path / "whole", outline(corpus), Counting(corpus, range(len(corpus))))
    expected, real = files(tmp_path / "whole"), {name: getattr(Work, name) for name in ("file", "drop")}
    for stop_at in range(5, 1000, step):
        count = iter(range(stop_at))

        def dies(name: str, count: Any = count) -> Callable[..., None]:
            def call(*args: Any, **given: Any) -> None:
                if next(count, None) is None:
                    raise KeyboardInterrupt
                real[name](*args, **given)

            return call

        folder = tmp_path / f"killed-{stop_at}"
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(Work, name, dies(name))
            try:
                write(folder, outline(corpus), Counting(corpus, range(len(corpus))))
            except KeyboardInterrupt:
                pass
            else:
                assert stop_at > 20
                return
        after = Counting(corpus, range(len(corpus)))
        write(folder, outline(corpus), after)
        assert files(folder) == expected
        if stop_at > len(expected) + len(Pairs(corpus, outline(corpus).batches, "max").tasks):
            assert not after.asked  # all blocks were there: no pair is scored again for files that are only dropped


def test_a_damaged_block_is_made_again_with_its_pairs(tmp_path: Path, corpus: Corpus) -> None:
    relevance, made = Counting(corpus, range(len(corpus))), outline(corpus)
    work = Work(tmp_path / "work")
    (work.folder / ".done").mkdir(parents=True)
    make_all(PlanTasks(made, lambda: relevance), work, SILENT)
    before = files(work.folder)
    name = next(n for n in before if n.startswith("blocks-"))
    (work.folder / name).write_bytes(before[name][:-1] + b"?")
    make_all(PlanTasks(made, lambda: relevance), Work(tmp_path / "work"), SILENT)
    assert files(work.folder) == before


def test_sums_that_stand_between_two_float32_are_rounded_as_pairs_does(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.5 + 2**-25 is half-way between two float32; one ulp of float64 in a BLAS's order would tip it."""
    relevance = vectors(corpus)
    relevance.vectors[:] = 0
    relevance.vectors[0, :3] = 0.5, 2.0**-25, 2.0**-80
    relevance.vectors[1, :3] = 1.0, 1.0, -1.0
    asked: list[tuple[int, int]] = []
    real = VectorRelevance.pairs

    def pairs(self: VectorRelevance, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        asked.append((int(references.rows[0]), int(captions[0])))
        return real(self, references, captions, pooling)

    monkeypatch.setattr(VectorRelevance, "pairs", pairs)
    block = block_of(relevance, np.array([0, 1], np.int32), "paired")
    assert {(0, 1), (1, 0)} <= set(asked)
    assert block[0, 1] == np.float32(relevance.pairs(References.of([[0]]), np.array([1], np.int32), "paired")[0])
    assert len(set(asked)) < 4  # sums that are clear are not asked again


def test_a_large_batch_is_scored_in_pieces(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    relevance, rows = vectors(corpus), np.arange(len(corpus), dtype=np.int32)
    whole = block_of(relevance, rows, "max")
    monkeypatch.setattr("relabel.sources.cosine._ROUNDED_CELLS", 200)
    assert np.array_equal(block_of(relevance, rows, "max"), whole)


def test_threads_change_no_byte(tmp_path: Path, corpus: Corpus) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads):
            write(tmp_path / str(threads), outline(corpus, "vectors", batch_size=30), vectors(corpus))
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_captions_whose_labels_are_no_numbers_are_left_out(tmp_path: Path, corpus: Corpus) -> None:
    bad = (int(corpus.indptr[2]),)
    for pooling, lost in (("max", 6), ("paired", 1)):
        plan, manifest = write(tmp_path / pooling, outline(corpus, "vectors", pooling, failed=bad), vectors(corpus))  # type: ignore[arg-type]
        used = set(np.concatenate([plan.rows(n) for n in plan.epoch(0)]).tolist())
        assert manifest.facts["left_out"] == lost
        assert used == set(corpus.rows(["train"])) - set(range(bad[0], bad[0] + lost))
    sixth = int(corpus.indptr[2]) + 5  # stands for no image: only its own labels are no numbers
    plan, manifest = write(tmp_path / "sixth", outline(corpus, "vectors", failed=(sixth,)), vectors(corpus))
    used = set(np.concatenate([plan.rows(n) for n in plan.epoch(0)]).tolist())
    assert used == set(corpus.rows(["train"])) - {sixth}


def test_a_large_plan_has_few_shards() -> None:
    for batches in (1, 300, 5_000_000):
        shape = Shape(128, (batches,))
        assert [n for shard in shape.shards for n in (shard.start, shard.stop - 1)][-1] == batches - 1
        assert len(shape.shards) <= 256
    assert Shape(128, (300,)).per_shard == 1024


@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_the_estimate_is_exact_in_bytes_and_pairs(tmp_path: Path, corpus: Corpus, kind: Kind) -> None:
    relevance = Counting(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    made = outline(corpus, kind, batches=4, drop_last=False)
    found = estimate(made, relevance)
    plan, _ = write(tmp_path / "plan", made, relevance)
    assert found.bytes == sum(len(content) for content in files(tmp_path / "plan").values())
    assert (found.batches, found.shards, found.batch_size) == (len(plan), 1, 6)
    if kind == "vectors":
        assert (found.pairs, found.work_bytes) == (sum(len(plan.rows(n)) ** 2 for n in range(len(plan))), 0)
    else:
        assert found.pairs == len(relevance.asked)  # type: ignore[attr-defined]
        assert found.work_bytes == 16 * found.pairs
    assert f"{len(plan)} batches of 6 in 1 shards" in found.describe()


def test_absurd_sizes_are_refused_before_any_work(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "planned", None)  # drawing would fail
    with pytest.raises(UsageError, match=r"6,000,000 batches of 6 take 8\d\d.\d MB, more than 1.0 MB.*--max-bytes"):
        check_size_limit(outline(corpus, epochs=1_000_000, max_bytes="1MB"))
    check_size_limit(outline(corpus, epochs=1_000_000, max_bytes="1GiB"))
    with pytest.raises(ValueError, match="max_bytes"):
        outline(corpus, max_bytes="many")


def test_a_disk_without_room_is_refused(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    found = estimate(outline(corpus), Counting(corpus, range(len(corpus))))
    needed = found.bytes + found.work_bytes
    free = {"free": needed}
    monkeypatch.setattr(plan_estimate.shutil, "disk_usage", lambda _: type("Usage", (), free))
    check_disk_space(found, tmp_path / "not" / "there", 0)
    free["free"] = needed - 100
    check_disk_space(found, tmp_path / "not" / "there", 100)
    with pytest.raises(PartialError, match="are free"):
        check_disk_space(found, tmp_path / "not" / "there", 0)


def test_ids_and_what_plan_json_says(tmp_path: Path, corpus: Corpus) -> None:
    plan, manifest = write(tmp_path / "plan", outline(corpus, "vectors"), vectors(corpus))
    for number in (0, 7):
        rows = plan.rows(number)
        captions, images = plan.names(number)
        assert captions == [corpus.caption_ids[r] for r in rows]
        assert images == [corpus.image_ids[corpus.image[r]] for r in rows]
    about = plan.about
    assert about["orientation"] == "rows are images, columns are captions; the text direction is the transpose"
    assert (about["pooling"], about["bounds"], about["coverage"]) == ("max", [-1, 1], "every pair of every batch")
    assert (about["fingerprint"], about["sampler"]["seed"], about["batches"]) == ("fingerprint", 0, 18)
    assert {k: manifest.facts[k] for k in ("sampler", "pooling", "bounds")} == {
        k: about[k] for k in ("sampler", "pooling", "bounds")
    }


def test_what_is_no_plan_is_refused(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(FileNotFoundError, match="relabel export plan"):
        open_plan(tmp_path)
    plan, _ = write(tmp_path / "plan", outline(corpus, "vectors"), vectors(corpus))
    with pytest.raises(IndexError, match="no batch 18; the plan has 18"):
        plan[18]
    with pytest.raises(ValueError, match="epoch 3 is not planned"):
        plan.epoch(3)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_what_the_parent_reads(
    tmp_path: Path, corpus: Corpus, start: Literal["fork", "spawn"], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from relabel_train.batches.torch_sampler import PlanDataset

    monkeypatch.setattr(spec, "_SHARD", 4 * 36 * 5)
    plan, _ = write(tmp_path / "plan", outline(corpus, "vectors"), vectors(corpus))
    expected = [plan[n] for n in range(len(plan))]  # maps are open when the workers start
    data = PlanDataset(plan)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context=start)
    found = list(loader)
    assert len(found) == len(expected)
    for batch, (rows, relevance, same_image) in zip(found, expected, strict=True):
        assert (batch.rows.dtype, batch.relevance.dtype) == (torch.int64, torch.float32)
        assert batch.rows.tolist() == rows.tolist()
        assert np.array_equal(batch.relevance.numpy(), relevance)
        assert np.array_equal(batch.same_image.numpy(), same_image)
    shares = [PlanDataset(plan, 1, rank, 4, even=False).numbers.tolist() for rank in range(4)]
    assert sorted(n for share in shares for n in share) == plan.epoch(1)
    assert multiprocessing.active_children() == []
