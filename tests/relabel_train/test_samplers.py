"""Contract: batches are determined by a sampler's parameters, the seed and the epoch. No caption occurs twice in a
batch, and ranks take disjoint batches of the same epoch. Random and graded batches contain each caption once per
epoch, and graded batches follow the documented algorithm. A loader that is built once has the batches of epochs 0, 1,
2 and so on, and those of `set_epoch`, under torch, Lightning and Accelerate, in one process and in two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train import samplers
from relabel_train.samplers import Captions, Rows, StableRandom, quantile_levels

RANDOM, NEIGHBOUR, GRADED = samplers.RandomBatchSampler, samplers.NeighbourBatchSampler, samplers.GradedBatchSampler
FIRST, IMAGES = 40, 60
IMAGE = np.repeat(np.arange(IMAGES, dtype=np.int32), 5)
CAPTIONS = Captions.of(IMAGE, first=FIRST)
HALF = Captions.of(IMAGE, np.arange(len(IMAGE)) % 2 == 0, first=FIRST)
LEVELS = (0.8, 0.6, 0.3)


class Table:
    """Captions on a sphere, with exact neighbours of all rows from FIRST on."""

    def __init__(self, image: Rows = IMAGE) -> None:
        vectors = np.random.default_rng(0).normal(size=(len(image), 6))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.score, self.image = vectors @ vectors.T, image
        np.fill_diagonal(self.score, -np.inf)

    def neighbours(self, rows: Rows, k: int, missing: str = "") -> tuple[Rows, NDArray[np.float64], NDArray[np.bool_]]:
        at = np.asarray(rows) - FIRST
        near = np.argsort(-self.score[at], axis=1, kind="stable")[:, :k]
        same = self.image[near] == self.image[at][:, None]
        return (near + FIRST).astype(np.int32), np.take_along_axis(self.score[at], near, 1), same


def make(kind: Any, captions: Captions = CAPTIONS, size: int = 16, **given: Any) -> Any:
    tables = [] if kind is RANDOM else [Table()]
    graded = {"levels": LEVELS, "depth": 60} if kind is GRADED else {}
    return kind(captions, *tables, size, **{"seed": 3, "drop_last": True, **graded, **given})


def lists(batches: Sequence[Rows]) -> list[list[int]]:
    return [b.tolist() for b in batches]


ALL = pytest.mark.parametrize("kind", [RANDOM, NEIGHBOUR, GRADED])
BOTH = pytest.mark.parametrize("captions", [CAPTIONS, HALF])


@ALL
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_batches_depend_on_seed_and_epoch_and_ranks_share_them(kind: Any, world_size: int) -> None:
    sampler = make(kind)
    once, later = lists(sampler.epoch(0)), lists(sampler.epoch(1))
    assert lists(make(kind).epoch(1)) == later  # independent of earlier calls
    assert lists(sampler.epoch(0)) == once
    assert lists(make(kind, seed=4).epoch(0)) != once != later
    shares = [sampler.shard(rank, world_size, even=False) for rank in range(world_size)]
    for share in shares:
        share.set_epoch(1)
    assert sorted(b for s in shares for b in s) == sorted(later)
    assert sum(map(len, shares)) == len(sampler) == len(later)


@ALL
@pytest.mark.parametrize("size", [16, 17, 40, 300])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_even_shards_have_as_many_batches_of_one_size(kind: Any, size: int, world_size: int) -> None:
    sampler, full = (
        make(kind, size=size, drop_last=False, **({"siblings": True} if kind is NEIGHBOUR else {})),
        300 // size,
    )
    if kind is NEIGHBOUR:
        full = -(-300 // size)  # of as many anchors, each with a complete batch
    if full < world_size:
        with pytest.raises(ValueError, match=f"{full} full batches, for {world_size} processes"):
            sampler.shard(0, world_size)
        return
    shards, epochs = (
        [sampler.shard(rank, world_size) for rank in range(world_size)],
        [lists(sampler.epoch(e)) for e in (0, 1)],
    )
    for expected in epochs:
        shares = [list(shard) for shard in shards]
        assert [len(s) for s in shares] == list(map(len, shards)) == [len(shares[0])] * world_size
        if world_size > 1:
            assert {len(batch) for s in shares for batch in s} == {size}
            assert len(shares[0]) == full // world_size
            assert shares == [expected[rank : full - full % world_size : world_size] for rank in range(world_size)]
        else:
            assert shares == [expected]


def in_order(batch: Any) -> list[int]:
    return list(batch)


@pytest.mark.parametrize("workers", [0, 2])
@ALL
def test_a_loader_that_is_built_once_has_every_epoch(kind: Any, workers: int) -> None:
    torch = pytest.importorskip("torch")
    expected = [lists(make(kind).epoch(e)) for e in range(6)]
    loader = torch.utils.data.DataLoader(
        range(400), batch_sampler=make(kind), num_workers=workers, collate_fn=in_order, persistent_workers=workers > 0
    )
    assert [list(loader) for _ in range(3)] == expected[:3]
    loader.batch_sampler.set_epoch(5)
    assert (list(loader), len(loader)) == (expected[5], len(expected[5]))
    for batch in loader:  # an epoch that is left early is over, too
        assert all(type(row) is int for row in batch)
        break
    assert next(iter(loader)) == make(kind).epoch(7)[0].tolist()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("size", [16, 21])
def test_accelerate_has_every_epoch(processes: int, size: int) -> None:
    prepare = pytest.importorskip("accelerate.data_loader").prepare_data_loader
    torch = pytest.importorskip("torch")
    expected = [lists(make(RANDOM, size=size, drop_last=False).epoch(e)) for e in range(6)]
    loaders = []
    for process in range(processes):
        loader = torch.utils.data.DataLoader(
            range(400), batch_sampler=make(RANDOM, size=size, drop_last=False), collate_fn=in_order
        )
        loaders.append(prepare(loader, None, processes, process, put_on_device=False))
    for epoch in (0, 1, 2, 5):
        for loader in loaders if epoch == 5 else []:
            loader.set_epoch(epoch)
        shares, full = [list(loader) for loader in loaders], 300 // size // processes * processes
        assert [len(s) for s in shares] == [len(loader) for loader in loaders]
        for rank, share in enumerate(shares):
            assert share[: full // processes] == expected[epoch][rank:full:processes]


@pytest.mark.slow
def test_lightning_has_every_epoch_and_resumes(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    torch = pytest.importorskip("torch")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), {}

        def training_step(self, batch: Any) -> Any:
            self.seen.setdefault(self.current_epoch, []).append(batch.tolist())
            return self.layer(batch[:, None].float()).mean() * 0

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    def fit(epochs: int, checkpoint: Any = None) -> Any:
        settings = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_epochs=epochs, default_root_dir=tmp_path, **settings)
        model = Model()
        trainer.fit(model, torch.utils.data.DataLoader(range(400), batch_sampler=make(RANDOM)), ckpt_path=checkpoint)
        return trainer, model.seen

    expected = {epoch: lists(make(RANDOM).epoch(epoch)) for epoch in range(5)}
    trainer, seen = fit(3)
    assert seen == {epoch: expected[epoch] for epoch in range(3)}
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    assert fit(5, tmp_path / "three.ckpt")[1] == {epoch: expected[epoch] for epoch in (3, 4)}


@ALL
@BOTH
@pytest.mark.parametrize("size", [1, 7, 16, 300, 301, 1000])
@pytest.mark.parametrize("drop_last", [True, False])
def test_sizes_and_each_caption_once_per_epoch(kind: Any, captions: Captions, size: int, drop_last: bool) -> None:
    settings = {"k": min(5, size - 1), "siblings": True} if kind is NEIGHBOUR else {}
    sampler = make(kind, captions, size, drop_last=drop_last, **settings)
    batches, count = sampler.epoch(2), len(captions) // size if drop_last else -(-len(captions) // size)
    assert len(batches) == len(sampler) == count
    for rows in batches:
        assert len(set(rows.tolist()) & set(captions.rows.tolist())) == len(rows) <= size
        assert rows.dtype == np.int32
        assert len(rows) == size or not drop_last
    if kind is not NEIGHBOUR:
        used = [row for rows in batches for row in rows.tolist()]
        assert len(set(used)) == len(used) == (count * size if drop_last else len(captions))
    assert make(kind, Captions.of(IMAGE[:0])).epoch(0) == []


def test_one_caption_per_image() -> None:
    sampler = make(RANDOM, size=8, one_caption_an_image=True, drop_last=False)
    epochs = [np.concatenate(sampler.epoch(epoch)) for epoch in range(30)]
    for rows in epochs:
        assert sorted(IMAGE[rows - FIRST].tolist()) == list(range(IMAGES))
    assert len(sampler) == -(-IMAGES // 8)
    assert len(np.unique(epochs)) > 0.98 * len(IMAGE)  # all captions of an image are used in turn


@pytest.mark.parametrize("siblings", [True, False])
@BOTH
def test_a_neighbour_batch_has_an_anchor_its_nearest_and_random_captions(captions: Captions, siblings: bool) -> None:
    for rows in make(NEIGHBOUR, captions, 12, k=4, siblings=siblings, depth=40).epoch(1):
        images, expected = IMAGE[rows - FIRST].tolist(), [int(rows[0])]
        for row in Table().neighbours(rows[:1], 40)[0][0].tolist():
            taken = not siblings and IMAGE[row - FIRST] in {IMAGE[r - FIRST] for r in expected}
            if row in captions.rows and not taken and len(expected) < 5:
                expected.append(row)
        assert rows[:5].tolist() == expected
        assert siblings or len(set(images)) == len(images)


def graded_by_hand(captions: Captions, size: int, group: int, depth: int) -> list[list[int]]:
    """Apply the documented algorithm in plain loops."""
    draws, rows = StableRandom(3, 0), captions.rows.tolist()
    free, groups = set(rows), []
    candidates: dict[int, list[list[int]]] = {row: [[] for _ in LEVELS] for row in rows}
    for row in rows:
        near, scores, same = (a[0].tolist() for a in Table().neighbours(np.array([row], np.int32), depth))
        for other, score, sibling in zip(near, scores, same, strict=True):
            level = next((n for n, threshold in enumerate(LEVELS) if score >= threshold), None)
            if other in rows and not sibling and level is not None:
                candidates[row][level].append(other)
    for place in draws.permutation(len(rows)).tolist():
        if rows[place] not in free:
            continue
        free.discard(rows[place])
        grown = [rows[place]]
        for member in grown:
            for at in candidates[member]:
                images = {IMAGE[r - FIRST] for r in grown}
                able = [r for r in at if r in free and IMAGE[r - FIRST] not in images]
                if not set(at) & set(grown) and able and len(grown) < group:
                    grown.append(able[draws.one(len(able))])
                    free.discard(grown[-1])
        groups.append(grown)
    flat = [row for g in draws.permutation(len(groups)).tolist() for row in groups[g]]
    return [flat[a : a + size] for a in range(0, len(flat) - size + 1, size)]


@BOTH
@pytest.mark.parametrize("group", [2, 5, 16])
def test_graded_batches_follow_the_algorithm(captions: Captions, group: int) -> None:
    assert lists(make(GRADED, captions, group=group).epoch(0)) == graded_by_hand(captions, 16, group, 60)


@BOTH
def test_quantile_levels_are_reached_by_their_share_of_candidates(captions: Captions) -> None:
    levels = quantile_levels(captions, Table(), (0.1, 0.5, 1.0), depth=30)
    rows, scores, same = Table().neighbours(captions.rows, 30)
    reached = scores[np.isin(rows, captions.rows) & ~same]
    assert [(reached >= level).sum() for level in levels] == [np.ceil(q * len(reached)) for q in (0.1, 0.5, 1.0)]
    with pytest.raises(ValueError, match="no caption has a usable neighbour"):
        quantile_levels(Captions.of(IMAGE[:5], first=FIRST), Table(IMAGE[:5]), (0.5,), depth=4)


def test_quantiles_of_labels_that_are_mostly_equal_are_an_error() -> None:
    """Check labels of which half are 0."""
    table = Table()
    table.score = np.where(table.score > 0, 0, -0.25 * table.score.clip(-1, 1))
    assert quantile_levels(CAPTIONS, table, (0.1, 0.2), depth=300)[1] > 0
    for quantiles in ((0.1, 0.9), (0.9,), (0.7, 0.8, 1.0)):
        with pytest.raises(ValueError, match=r"above the lowest label, 0; 49\.6% of the labels are\. Pass"):
            quantile_levels(CAPTIONS, table, quantiles, depth=300)


def test_a_label_meets_its_level_in_spite_of_rounding() -> None:
    """Check that duplicates of score 1 - 1e-7, or 1, are candidates of level 1."""
    table, expected = Table(), []
    table.score = np.where(table.score > 0.8, 1.0, table.score)
    for rounding in (0.0, 1e-7):
        table.score -= rounding
        sampler = GRADED(CAPTIONS, table, 16, levels=(1.0, 0.5), seed=0, drop_last=True, depth=60)
        expected.append(lists(sampler.epoch(0)))
    assert expected[0] == expected[1]


REFUSED: list[Any] = [(RANDOM, "size", 0), (RANDOM, "seed", -1), (NEIGHBOUR, "k", 16), (GRADED, "group", 1)]
REFUSED += [(GRADED, "levels", (0.3, 0.8)), (GRADED, "levels", ())]


@pytest.mark.parametrize(("kind", "name", "value"), REFUSED)
def test_parameters_out_of_range_are_named(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} (is|are) {re.escape(str(value))}"):
        make(kind, **{name: value})
    with pytest.raises(ValueError, match=r"rank 3 is not in 0\.\.2"):
        make(kind).shard(3, 3)
