"""Contract: batches are determined by a sampler's parameters, the seed and the epoch. No caption occurs twice in a
batch, and ranks take disjoint batches of the same epoch. Random and graded batches contain each caption once per
epoch, and graded batches follow the documented algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    shares = [lists(sampler.batches(1, rank, world_size, even=False)) for rank in range(world_size)]
    assert sorted(b for s in shares for b in s) == sorted(later)
    even = [lists(sampler.batches(1, rank, world_size)) for rank in range(world_size)]
    assert even == [s[: len(later) // world_size] for s in shares]


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
    with pytest.raises(ValueError, match="no caption has a neighbour"):
        quantile_levels(Captions.of(IMAGE[:5], first=FIRST), Table(IMAGE[:5]), (0.5,), depth=4)


REFUSED: list[Any] = [(RANDOM, "size", 0), (RANDOM, "seed", -1), (NEIGHBOUR, "k", 16), (GRADED, "group", 1)]
REFUSED += [(GRADED, "levels", (0.3, 0.8)), (GRADED, "levels", ())]


@pytest.mark.parametrize(("kind", "name", "value"), REFUSED)
def test_parameters_out_of_range_are_named(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} (is|are) {re.escape(str(value))}"):
        make(kind, **{name: value})
    with pytest.raises(ValueError, match=r"rank 3 is not in 0\.\.2"):
        make(kind).batches(0, 3, 3)
