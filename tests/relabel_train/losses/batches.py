"""Irregular batches, and the comparison of a loss with loops over its queries."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Query = Callable[[list[float], list[float], list[bool], int], float]
"""Oracle of one query: a function of its scores, labels, own items, and the index of its pair."""


@dataclass(frozen=True)
class Batch:
    """Scores, labels and marks of captions of one image; float64, (B, B)."""

    scores: Tensor
    relevance: Tensor
    same_image: Tensor

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.scores, self.relevance, self.same_image

    def turned(self) -> Batch:
        return Batch(self.scores.T, self.relevance.T, self.same_image.T)


def make_irregular(seed: int, size: int = 9) -> Batch:
    """Make tied scores, and labels that lie on a lattice of 0.05 (on thresholds and window edges) or tie off it.

    The diagonal is 1. Captions 2 and 5 belong to one image, so their rows of scores are equal. Row 3 has no label
    between 0.5 and 0.99, and item 7 duplicates the text of item 0.
    """
    rng, places = random.Random(seed), range(size)
    lattice = [k / 20 for k in range(-20, 20)]
    scores = [[rng.choice([-0.4, 0.1, 0.3, rng.uniform(-1, 1), rng.uniform(0, 1)]) for _ in places] for _ in places]
    relevance = [
        [rng.choice([0.63, 0.56, 0.6, rng.uniform(-1, 1), rng.choice(lattice)]) for _ in places] for _ in places
    ]
    relevance[3] = [label - 0.7 if label >= 0.5 else label for label in relevance[3]]
    for i in places:
        relevance[i][i] = 1.0
    relevance[7][0] = relevance[0][7] = 1.0
    scores[5], relevance[2][5], relevance[5][2] = list(scores[2]), 0.6, 0.55
    same_image = torch.eye(size, dtype=torch.bool)
    same_image[2, 5] = same_image[5, 2] = True
    return Batch(*(torch.tensor(table, dtype=torch.float64) for table in (scores, relevance)), same_image)


IRREGULAR = [make_irregular(seed) for seed in range(3)]


def make_smooth(seed: int, rows: int = 6, columns: int = 6) -> tuple[Tensor, Tensor]:
    """Make scores and labels without ties, away from edges, where a loss is differentiable."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 2 - 1
    relevance = torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 1.9 - 0.95
    return scores, relevance.fill_diagonal_(1)


def sum_rows(query: Query, batch: Batch) -> float:
    lists = [t.tolist() for t in batch.all]
    return sum(query(*row, i) for i, row in enumerate(zip(*lists, strict=True)))


def assert_equals_loops(
    loss: nn.Module, query: Query, factor: float = 1.0, batches: Iterable[Batch] = IRREGULAR
) -> None:
    """Compare a loss with its oracle, summed over rows and columns, with and without marks of siblings."""
    for batch in batches:
        unmarked = replace(batch, same_image=torch.eye(len(batch.scores), dtype=torch.bool))
        for marked, same in ((batch, batch.same_image), (unmarked, None)):
            expected = (sum_rows(query, marked) + sum_rows(query, marked.turned())) * factor
            value = loss(batch.scores, batch.relevance, same).item()
            assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)


def with_gradient(loss: Any, scores: Tensor, *labels: Tensor | None) -> tuple[Tensor, Tensor]:
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, *labels)
    return value.detach(), torch.autograd.grad(value, leaf)[0]
