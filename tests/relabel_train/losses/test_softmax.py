"""Contract: MultiPositiveInfoNCE equals its loops, and the cross-entropy of CLIP if a query has one positive.

SoftTargetLoss equals its loops and torch's KL divergence; it is 0 for scores that follow the labels.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from relabel_train.losses import MultiPositiveInfoNCE, SoftTargetLoss


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


def test_gradient(smooth: Any) -> None:
    scores, relevance = smooth(2, 4, 5)
    assert torch.autograd.gradcheck(lambda s: SoftTargetLoss(0.3)(s, relevance), scores.requires_grad_())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("positive", [None, 0.63])
def test_infonce_equals_loops(batch: Any, both_ways: Any, positive: float | None, masked: bool) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        mine = [j for j in range(len(s)) if own[j] or (positive is not None and r[j] >= positive - 1e-9)]
        log_sum = math.log(sum(math.exp(x / 0.07) for x in s))
        return -sum(s[j] / 0.07 - log_sum for j in mine) / len(mine)

    loss = MultiPositiveInfoNCE(positive=positive)
    value = loss(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked) / 9 / 2, rel=1e-9, abs=1e-9)


def test_one_positive_is_clip(batch: Any) -> None:
    logits, target = batch.scores / 0.07, torch.arange(9)
    expected = (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2
    torch.testing.assert_close(MultiPositiveInfoNCE()(batch.scores), expected)


def test_images_against_all_their_captions() -> None:
    """Check scores that are not square, and a query without a positive, whose loss is 0."""
    scores = torch.rand(2, 6, dtype=torch.float64)
    own_captions = torch.tensor([[True, True, True, False, False, False], [False, False, False, True, True, False]])
    terms = MultiPositiveInfoNCE(1.0, reduction="sum", directions="sum").terms(scores, same_image=own_captions)
    log = torch.log_softmax(scores, dim=1)
    torch.testing.assert_close(terms["infonce_i2t"], -log[0, :3].mean() - log[1, 3:5].mean())
    log = torch.log_softmax(scores.T, dim=1)
    torch.testing.assert_close(terms["infonce_t2i"], -log[:3, 0].sum() - log[3:5, 1].sum())
    with pytest.raises(ValueError, match="without same_image they must be square"):
        MultiPositiveInfoNCE()(scores)


def test_infonce_gradient(smooth: Any) -> None:
    scores, _ = smooth(2)
    assert torch.autograd.gradcheck(lambda s: MultiPositiveInfoNCE(0.5)(s), scores.requires_grad_())
