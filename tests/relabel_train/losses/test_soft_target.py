"""Contract: SoftTargetLoss equals its loops and torch's KL divergence; it is 0 for scores that follow the labels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from relabel_train.losses import SoftTargetLoss


def softmax(values: list[float], tau: float) -> list[float]:
    exps = [math.exp(v / tau) for v in values]
    return [e / sum(exps) for e in exps]


@pytest.mark.parametrize("masked", [False, True])
def test_equals_loops(batch: Any, both_ways: Any, masked: bool) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        best = max(x for x, mine in zip(r, own, strict=True) if mine)
        target = softmax([best if mine and masked else x for x, mine in zip(r, own, strict=True)], 0.3)
        return sum(t * (math.log(t) - math.log(f)) for t, f in zip(target, softmax(s, 0.1), strict=True))

    value = SoftTargetLoss(0.1, 0.3)(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked) / 9 / 2, rel=1e-9, abs=1e-9)


def test_equals_torch_kl_div(batch: Any) -> None:
    target = functional.softmax(batch.relevance, dim=1)
    log_probabilities = functional.log_softmax(batch.scores / 0.45, dim=1)
    expected = functional.kl_div(log_probabilities, target, reduction="batchmean")
    torch.testing.assert_close(SoftTargetLoss().terms(batch.scores, batch.relevance)["soft_target_i2t"] * 2, expected)


def test_scores_that_follow_the_labels_have_loss_0() -> None:
    relevance = torch.rand(4, 7, dtype=torch.float64)
    scores = (relevance * 0.1 / 0.5 + 3).requires_grad_()
    loss = SoftTargetLoss(0.1, 0.5)(scores, relevance)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert scores.grad is not None
    assert scores.grad.abs().max().item() < 1e-12


def test_text_to_text(batch: Any) -> None:
    """Check that both directions of symmetric matrices are equal."""
    scores, relevance = batch.scores + batch.scores.T, batch.relevance + batch.relevance.T
    terms = SoftTargetLoss().terms(scores, relevance)
    torch.testing.assert_close(terms["soft_target_i2t"], terms["soft_target_t2i"])


def test_gradient(smooth: Any) -> None:
    scores, relevance = smooth(2, 4, 5)
    assert torch.autograd.gradcheck(lambda s: SoftTargetLoss(0.3)(s, relevance), scores.requires_grad_())
