"""Contract: batches are determined by a sampler's parameters, the seed and the epoch. No caption occurs twice in a
batch, and ranks take disjoint batches of the same epoch. Random and graded batches contain each caption once per
epoch, and graded batches follow the documented algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.samplers import (
    Captions,
    GradedBatchSampler,
    NeighbourBatchSampler,
    RandomBatchSampler,
    Rows,
    Sampler,
    StableRandom,
    quantile_levels,
)

FIRST, IMAGES, EACH = 40, 60, 5


class Table:
    """Captions on a sphere, with exact neighbours and blocks of all rows from FIRST on."""

    def __init__(self, image: Rows, first: int = FIRST, seed: int = 0) -> None:
        vectors = np.random.default_rng(seed).normal(size=(len(image), 6))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.score, self.image, self.first = vectors @ vectors.T, image, first
        self.requests: list[int] = []

    def neighbours(
        self, rows: Rows, k: int, missing: str = "raise"
    ) -> tuple[Rows, NDArray[np.float64], NDArray[np.bool_]]:
        self.requests += np.asarray(rows).tolist()
        at = np.asarray(rows) - self.first
        score = self.score[at].copy()
        score[np.arange(len(at)), at] = -np.inf
        near = np.argsort(-score, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(score, near, 1)
        return (near + self.first).astype(np.int32), scores, self.image[near] == self.image[at][:, None]


IMAGE = np.repeat(np.arange(IMAGES, dtype=np.int32), EACH)
CAPTIONS = Captions.of(IMAGE, first=FIRST)
HALF = Captions.of(IMAGE, np.arange(len(IMAGE)) % 2 == 0, first=FIRST)

Make = Callable[..., Sampler]


def random(captions: Captions = CAPTIONS, size: int = 16, **given: Any) -> Sampler:
    return RandomBatchSampler(captions, size, **{"seed": 3, "drop_last": True, **given})


def neighbour(captions: Captions = CAPTIONS, size: int = 16, **given: Any) -> Sampler:
    return NeighbourBatchSampler(captions, Table(IMAGE), size, **{"seed": 3, "drop_last": True, **given})


def graded(captions: Captions = CAPTIONS, size: int = 16, **given: Any) -> Sampler:
    settings = {"seed": 3, "drop_last": True, "levels": (0.8, 0.6, 0.3), "depth": 60, **given}
    return GradedBatchSampler(captions, Table(IMAGE), size, **settings)


ALL = pytest.mark.parametrize("make", [random, neighbour, graded])


def lists(batches: Sequence[Rows]) -> list[list[int]]:
    return [b.tolist() for b in batches]


@ALL
def test_batches_depend_on_seed_and_epoch_only(make: Make) -> None:
    sampler = make()
    once, later = lists(sampler.epoch(0)), lists(sampler.epoch(1))
    assert lists(make().epoch(1)) == later  # independent of earlier calls
    assert lists(sampler.epoch(0)) == once
    assert lists(make(seed=4).epoch(0)) != once != later
    assert len(once) == len(later) == len(sampler)


@ALL
@pytest.mark.parametrize("size", [1, 7, 16, 300, 301, 1000])
@pytest.mark.parametrize("drop_last", [True, False])
def test_sizes(make: Make, size: int, drop_last: bool) -> None:
    settings = {"k": min(5, size - 1)} if make is neighbour else {}
    sampler = make(size=size, drop_last=drop_last, **({**settings, "siblings": True} if settings else {}))
    batches = sampler.epoch(2)
    assert len(batches) == len(sampler)
    assert (len(batches) == 0) == (drop_last and size > len(IMAGE))
    for rows in batches:
        assert rows.dtype == np.int32
        assert len(set(rows.tolist())) == len(rows) <= size
        assert FIRST <= rows.min() <= rows.max() < FIRST + len(IMAGE)
    if drop_last:
        assert all(len(rows) == size for rows in batches)


def test_one_caption_per_image() -> None:
    sampler = random(size=8, one_caption_an_image=True, drop_last=False)
    seen: set[int] = set()
    for epoch in range(30):
        rows = np.concatenate(sampler.epoch(epoch))
        assert sorted((IMAGE[rows - FIRST]).tolist()) == list(range(IMAGES))
        seen |= set(rows.tolist())
    assert len(sampler) == -(-IMAGES // 8)
    assert len(seen) > 0.98 * len(IMAGE)  # all captions of an image are used in turn


@ALL
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_ranks_are_disjoint_and_complete(make: Make, world_size: int) -> None:
    sampler = make()
    batches = lists(sampler.epoch(4))
    shares = [lists(sampler.batches(4, rank, world_size, even=False)) for rank in range(world_size)]
    assert sorted(b for s in shares for b in s) == sorted(batches)
    even = [lists(sampler.batches(4, rank, world_size)) for rank in range(world_size)]
    assert {len(s) for s in even} == {len(batches) // world_size}
    assert all(e == s[: len(e)] for e, s in zip(even, shares, strict=True))
    with pytest.raises(ValueError, match=r"rank 3 is not in 0\.\.2"):
        sampler.batches(0, 3, 3)


@pytest.mark.parametrize("siblings", [True, False])
@pytest.mark.parametrize("captions", [CAPTIONS, HALF])
def test_a_neighbour_batch_has_an_anchor_its_nearest_and_random_captions(captions: Captions, siblings: bool) -> None:
    table, sampler = Table(IMAGE), neighbour(captions, size=12, k=4, siblings=siblings, depth=40)
    for rows in sampler.epoch(1):
        anchor, images = int(rows[0]), IMAGE[rows - FIRST].tolist()
        expected: list[int] = []
        for row in table.neighbours(rows[:1], 40)[0][0].tolist():
            batch_images = {IMAGE[r - FIRST] for r in [anchor, *expected]}
            if row in captions.rows and (siblings or IMAGE[row - FIRST] not in batch_images) and len(expected) < 4:
                expected.append(row)
        assert rows[1:5].tolist() == expected
        assert siblings or len(set(images)) == len(images)
        assert set(rows.tolist()) <= set(captions.rows.tolist())


def graded_by_hand(captions: Captions, levels: Sequence[float], size: int, group: int, depth: int) -> list[list[int]]:
    """Apply the documented algorithm in plain loops."""
    table, draws = Table(IMAGE), StableRandom(3, 0)
    rows = captions.rows.tolist()
    free, groups = set(rows), []
    candidates: dict[int, list[list[int]]] = {}
    for row in rows:
        near, scores, _ = (a[0].tolist() for a in table.neighbours(np.array([row], np.int32), depth))
        candidates[row] = [[] for _ in levels]
        for other, score in zip(near, scores, strict=True):
            level = next((n for n, t in enumerate(levels) if score >= t), None)
            if other in rows and IMAGE[other - FIRST] != IMAGE[row - FIRST] and level is not None:
                candidates[row][level].append(other)
    for place in draws.permutation(len(rows)).tolist():
        if rows[place] not in free:
            continue
        free.discard(rows[place])
        grown = [rows[place]]
        for member in grown:
            for level in range(len(levels)):
                images = {IMAGE[r - FIRST] for r in grown}
                at = candidates[member][level]
                able = [r for r in at if r in free and IMAGE[r - FIRST] not in images]
                if set(at) & set(grown) or not able or len(grown) == group:
                    continue
                grown.append(able[draws.one(len(able))])
                free.discard(grown[-1])
        groups.append(grown)
    flat = [row for g in draws.permutation(len(groups)).tolist() for row in groups[g]]
    return [flat[a : a + size] for a in range(0, len(flat) - size + 1, size)]


@pytest.mark.parametrize("captions", [CAPTIONS, HALF])
@pytest.mark.parametrize("group", [2, 5, 16])
def test_graded_batches_follow_the_algorithm(captions: Captions, group: int) -> None:
    expected = graded_by_hand(captions, (0.8, 0.6, 0.3), 16, group, 60)
    assert lists(graded(captions, group=group).epoch(0)) == expected


@pytest.mark.parametrize("captions", [CAPTIONS, HALF])
def test_quantile_levels_are_reached_by_their_share_of_candidates(captions: Captions) -> None:
    levels = quantile_levels(captions, Table(IMAGE), (0.1, 0.5, 1.0), depth=30)
    rows, scores, same = Table(IMAGE).neighbours(captions.rows, 30)
    reached = [
        s for r, s, m in zip(rows.ravel(), scores.ravel(), same.ravel(), strict=True) if r in captions.rows and not m
    ]
    for level, share in zip(levels, (0.1, 0.5, 1.0), strict=True):
        assert sum(s >= level for s in reached) == int(np.ceil(share * len(reached)))
    with pytest.raises(ValueError, match="no caption has a neighbour"):
        quantile_levels(Captions.of(IMAGE[:5], first=FIRST), Table(IMAGE[:5]), (0.5,), depth=4)
