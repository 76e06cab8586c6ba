"""Irregular batches, helpers shared by the oracles, and a single thread for small tensors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

Query = Callable[[list[float], list[float], list[bool], int], float]


@dataclass(frozen=True)
class Batch:
    """Scores, labels and marks of captions of one image; float64, (B, B)."""

    scores: Tensor
    relevance: Tensor
    same_image: Tensor


def make_irregular(seed: int, size: int = 9, siblings: bool = True) -> Batch:
    """Make tied scores, and labels that lie on a lattice of 0.05 (on thresholds and window edges) or tie off it.

    The diagonal is 1. Captions 2 and 5 belong to one image, so their rows of scores are equal. Row 3 has no label
    between 0.5 and 0.99, and item 7 duplicates the text of item 0.
    """
    rng = random.Random(seed)
    lattice = [k / 20 for k in range(-20, 20)]
    places = range(size)
    scores = [[rng.choice([-0.4, 0.1, 0.3, rng.uniform(-1, 1), rng.uniform(0, 1)]) for _ in places] for _ in places]
    relevance = [
        [rng.choice([0.63, 0.56, 0.6, rng.uniform(-1, 1), rng.choice(lattice)]) for _ in places] for _ in places
    ]
    same = [[i == j for j in range(size)] for i in range(size)]
    for i in range(size):
        relevance[i][i] = 1.0
    for j in range(size):
        if j != 3 and relevance[3][j] >= 0.5:
            relevance[3][j] -= 0.7
    relevance[7][0] = relevance[0][7] = 1.0
    if siblings:
        same[2][5] = same[5][2] = True
        scores[5] = list(scores[2])
        relevance[2][5], relevance[5][2] = 0.6, 0.55
    return Batch(
        torch.tensor(scores, dtype=torch.float64), torch.tensor(relevance, dtype=torch.float64), torch.tensor(same)
    )


def make_smooth(seed: int, rows: int = 6, columns: int = 6) -> tuple[Tensor, Tensor]:
    """Make scores and labels without ties, away from edges, where a loss is differentiable."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 2 - 1
    relevance = torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 1.9 - 0.95
    relevance[range(min(rows, columns)), range(min(rows, columns))] = 1.0
    return scores, relevance


def sum_both_ways(query: Query, batch: Batch, masked: bool) -> float:
    """Sum an oracle of one query (scores, labels, own items, index of its pair) over all rows and all columns."""
    total = 0.0
    for turn in (False, True):
        s, r, own_items = (t.T if turn else t for t in (batch.scores, batch.relevance, batch.same_image))
        for q in range(len(s)):
            mine = own_items[q].tolist() if masked else [j == q for j in range(len(s))]
            total += query(s[q].tolist(), r[q].tolist(), mine, q)
    return total


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[0, 1, 2])
def batch(request: pytest.FixtureRequest) -> Batch:
    """Return one of a few irregular batches."""
    return make_irregular(request.param)


@pytest.fixture
def irregular() -> Callable[..., Batch]:
    return make_irregular


@pytest.fixture
def smooth() -> Callable[..., tuple[Tensor, Tensor]]:
    return make_smooth


@pytest.fixture
def both_ways() -> Callable[[Query, Batch, bool], float]:
    return sum_both_ways
