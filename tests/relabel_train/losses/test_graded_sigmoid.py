"""Contract: GradedSigmoidLoss equals its loops, and SigLIP's loss if labels are 0 and 1.

It is precise for large logits, and refuses labels that are no probabilities.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.relabel_train.losses.batches import IRREGULAR, Batch, assert_equals_loops, with_gradient

from relabel_train.losses import GradedSigmoidLoss


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def make_loss(scale: float = 3.0, bias: float = -0.5, **options: Any) -> GradedSigmoidLoss:
    """Make a loss in float64, whose scale and bias are exactly the given numbers."""
    loss = GradedSigmoidLoss(scale, bias, **options).double()
    loss.log_scale.data.fill_(math.log(scale))
    loss.bias.data.fill_(bias)
    return loss


@pytest.mark.parametrize("labels", ["unit", "cosine"])
def test_equals_loops(labels: Any) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        total, best = 0.0, max(x for x, mine in zip(r, own, strict=True) if mine)
        for score, label, mine in zip(s, r, own, strict=True):
            target = best if mine else label
            target = (1 + target) / 2 if labels == "cosine" else target
            total -= target * log_sigmoid(3.0 * score - 0.5) + (1 - target) * log_sigmoid(0.5 - 3.0 * score)
        return total

    positive = [replace(batch, relevance=batch.relevance.abs()) for batch in IRREGULAR]
    assert_equals_loops(make_loss(labels=labels), query, 1 / 18, positive if labels == "unit" else IRREGULAR)


@pytest.mark.parametrize(("reduction", "factor"), [("mean", 1.0), ("sum", 9.0)])
def test_labels_of_0_and_1_are_siglip(batch: Batch, reduction: Any, factor: float) -> None:
    """Check -(1 / B) sum over i, j of log sigmoid(z_ij (t s_ij + b)) by its loop."""
    expected = 0.0
    for i in range(9):
        for j in range(9):
            z = 1.0 if batch.same_image[i, j] else -1.0
            expected -= log_sigmoid(z * (10.0 * batch.scores[i, j].item() - 10.0)) / 9 * factor
    for loss, rel in ((make_loss(10, -10, reduction=reduction), 1e-12), (GradedSigmoidLoss(reduction=reduction), 1e-6)):
        assert loss(batch.scores, batch.same_image.double()).item() == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize(("logit", "label"), [(30.0, 1.0), (-30.0, 0.0), (80.0, 1.0), (-80.0, 0.0), (80.0, 0.0)])
def test_large_logits_are_precise_in_float32(logit: float, label: float) -> None:
    """Check the loss to 1e-6 of its value, where log(sigmoid(x)) rounds to 0 or is infinite; the gradient to 6e-8."""
    value, slope = with_gradient(GradedSigmoidLoss(1.0, 0.0), torch.tensor([[logit]]), torch.tensor([[label]]))
    signed = logit if label else -logit
    assert value.item() == pytest.approx(math.log1p(math.exp(-abs(signed))) + max(-signed, 0.0), rel=1e-6)
    # The difference of a sigmoid and its target, each in 0..1, so one rounding of float32.
    assert abs(slope.item()) == pytest.approx(1 / (1 + math.exp(signed)), abs=6e-8)


@pytest.mark.parametrize(("labels", "label"), [("unit", -0.25), ("unit", 2.5), ("cosine", -1.5)])
def test_labels_out_of_range_are_refused(labels: Any, label: float) -> None:
    relevance = torch.eye(3)
    relevance[1, 2] = label
    with pytest.raises(ValueError, match=rf"{label} at row 1, column 2"):
        GradedSigmoidLoss(labels=labels)(torch.rand(3, 3), relevance)
    relevance[1, 2] = 1 + 1e-7  # rounding
    GradedSigmoidLoss(labels=labels)(torch.rand(3, 3), relevance)
