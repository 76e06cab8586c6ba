"""Contract: GradedSigmoidLoss equals its loops, and SigLIP's loss if labels are 0 and 1; scale and bias are learned.

It is precise for large logits, and refuses labels that are no probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from relabel_train.losses import GradedSigmoidLoss


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def make_loss(scale: float = 3.0, bias: float = -0.5, **options: Any) -> GradedSigmoidLoss:
    """Make a loss in float64, whose scale and bias are exactly the given numbers."""
    loss = GradedSigmoidLoss(scale, bias, **options).double()
    loss.log_scale.data.fill_(math.log(scale))
    loss.bias.data.fill_(bias)
    return loss


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("labels", ["unit", "cosine"])
def test_equals_loops(batch: Any, both_ways: Any, labels: Any, masked: bool) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        best = max(x for x, mine in zip(r, own, strict=True) if mine)
        total = 0.0
        for score, label, mine in zip(s, r, own, strict=True):
            target = best if mine and masked else label
            target = (1 + target) / 2 if labels == "cosine" else target
            logit = 3.0 * score - 0.5
            total -= target * log_sigmoid(logit) + (1 - target) * log_sigmoid(-logit)
        return total

    if labels == "unit":
        batch = type(batch)(batch.scores, batch.relevance.abs(), batch.same_image)
    value = make_loss(labels=labels)(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked) / 9 / 2, rel=1e-12)


@pytest.mark.parametrize(("reduction", "factor"), [("mean", 1.0), ("sum", 9.0)])
def test_labels_of_0_and_1_are_siglip(batch: Any, reduction: Any, factor: float) -> None:
    """Check -(1 / B) sum over i, j of log sigmoid(z_ij (t s_ij + b)) by its loop."""
    expected = 0.0
    for i in range(9):
        for j in range(9):
            z = 1.0 if batch.same_image[i, j] else -1.0
            expected -= log_sigmoid(z * (10.0 * batch.scores[i, j].item() - 10.0)) / 9
    own_captions = batch.same_image.double()
    value = make_loss(10.0, -10.0, reduction=reduction)(batch.scores, own_captions)
    assert value.item() == pytest.approx(expected * factor, rel=1e-12)
    defaults = GradedSigmoidLoss(reduction=reduction)(batch.scores, own_captions)
    assert defaults.item() == pytest.approx(expected * factor, rel=1e-6)


def test_gradient_of_scores_scale_and_bias(smooth: Any) -> None:
    scores, relevance = smooth(2, 4, 5)
    loss = make_loss(labels="cosine")
    same = torch.zeros(4, 5, dtype=torch.bool)
    same[1, 1] = same[1, 3] = True

    def value(s: Tensor, log_scale: Tensor, bias: Tensor) -> Tensor:
        learned = {"log_scale": log_scale, "bias": bias}
        result: Tensor = torch.func.functional_call(loss, learned, (s, relevance, same))
        return result

    inputs = (scores.requires_grad_(), loss.log_scale.detach(), loss.bias.detach())
    assert torch.autograd.gradcheck(value, [t.clone().requires_grad_() for t in inputs])


def test_the_best_scores_are_the_logits_of_the_labels(smooth: Any) -> None:
    """Check the gradient 0 at s = (log(r / (1 - r)) - b) / t, and only there."""
    relevance = smooth(3)[1].abs().clamp(0.01, 0.99)
    scores = ((torch.logit(relevance) + 0.5) / 3).requires_grad_()
    loss = make_loss()
    (gradient,) = torch.autograd.grad(loss(scores, relevance), scores)
    assert gradient.abs().max().item() < 1e-15
    (gradient,) = torch.autograd.grad(loss(scores + 0.1, relevance), scores)
    assert gradient.min().item() > 0


@pytest.mark.parametrize(("logit", "label"), [(30.0, 1.0), (-30.0, 0.0), (80.0, 1.0), (-80.0, 0.0), (80.0, 0.0)])
def test_large_logits_are_precise_in_float32(logit: float, label: float) -> None:
    """Check the loss to 1e-6 of its value, where log(sigmoid(x)) rounds to 0 or is infinite; the gradient to 6e-8."""
    scores = torch.tensor([[logit]], requires_grad=True)
    loss = GradedSigmoidLoss(1.0, 0.0)(scores, torch.tensor([[label]]))
    loss.backward()
    signed = logit if label else -logit
    assert loss.item() == pytest.approx(math.log1p(math.exp(-abs(signed))) + max(-signed, 0.0), rel=1e-6)
    assert scores.grad is not None
    # The difference of a sigmoid and its target, each in 0..1, so one rounding of float32.
    assert abs(scores.grad.item()) == pytest.approx(1 / (1 + math.exp(signed)), abs=6e-8)


def test_scale_and_bias_are_learned_unless_fixed(smooth: Any) -> None:
    scores, relevance = smooth(0)
    learned = GradedSigmoidLoss(4.0, -2.0, labels="cosine")
    assert {name for name, _ in learned.named_parameters()} == {"log_scale", "bias"}
    optimizer = torch.optim.Adam(learned.parameters(), lr=0.1)
    before = learned(scores, relevance)
    for _ in range(200):
        optimizer.zero_grad()
        learned(scores, relevance).backward()
        optimizer.step()
    assert learned(scores, relevance) < before
    assert learned.log_scale.exp().item() != pytest.approx(4)
    fixed = GradedSigmoidLoss(4.0, -2.0, learnable=False, labels="cosine")
    assert fixed(scores, relevance) == before
    assert not any(p.requires_grad for p in fixed.parameters())
    copy = GradedSigmoidLoss(labels="cosine")
    copy.load_state_dict(learned.state_dict())
    assert copy(scores, relevance) == learned(scores, relevance)
