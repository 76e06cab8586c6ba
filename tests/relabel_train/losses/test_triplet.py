"""Contract: TripletLoss equals its loops in value and gradient for every kind of negative, with and without masked
siblings.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from relabel_train.losses import TripletLoss


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("negatives", ["hardest", "sum", "soft"])
def test_equals_loops(batch: Any, both_ways: Any, negatives: Any, masked: bool) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        allowed = [j for j in range(len(s)) if not own[j] and (negatives != "soft" or r[j] < 1 - 1e-9)]
        if not allowed:
            return 0.0
        if negatives == "sum":
            return sum(max(0.0, 0.2 + s[j] - s[p]) for j in allowed)
        if negatives == "hardest":
            return max(0.0, max(0.2 + s[j] - s[p] for j in allowed))
        return max(0.0, math.log(sum(math.exp(50 * s[j]) for j in allowed)) / 50 - s[p] + 0.2)

    value = TripletLoss(negatives=negatives)(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("negatives", ["hardest", "sum", "soft"])
def test_gradient(smooth: Any, negatives: Any) -> None:
    scores, relevance = smooth(3)
    loss = TripletLoss(negatives=negatives, gamma=5)
    assert torch.autograd.gradcheck(lambda s: loss(s, relevance), scores.requires_grad_())


def test_exact_duplicates_are_no_soft_negatives() -> None:
    scores = torch.tensor([[0.5, 0.9], [0.9, 0.5]])
    assert TripletLoss(negatives="soft")(scores, torch.ones(2, 2)).item() == 0
    rounded = torch.tensor([[1.0, 0.9999999], [0.9999999, 1.0]])
    assert TripletLoss(negatives="soft")(scores, rounded).item() == 0
    assert TripletLoss(negatives="soft")(scores, torch.eye(2)).item() > 0


def test_large_scores_do_not_overflow() -> None:
    scores = torch.full((3, 3), 1000.0, requires_grad=True)
    loss = TripletLoss(negatives="soft")(scores, torch.eye(3))
    loss.backward()
    assert loss.item() == pytest.approx(6 * (0.2 + math.log(2) / 50), rel=1e-3)
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


def test_labels_are_optional_unless_they_are_read() -> None:
    scores = torch.eye(3)
    assert TripletLoss()(scores).item() == 0
    with pytest.raises(ValueError, match="TripletLoss needs relevance"):
        TripletLoss(negatives="soft")(scores)


def test_reductions() -> None:
    scores = torch.zeros(4, 4)
    assert TripletLoss()(scores).item() == pytest.approx(8 * 0.2)
    assert TripletLoss(reduction="mean")(scores).item() == pytest.approx(2 * 0.2)
    assert TripletLoss(reduction="mean", directions="mean")(scores).item() == pytest.approx(0.2)
    assert set(TripletLoss().terms(scores)) == {"triplet_i2t", "triplet_t2i"}
