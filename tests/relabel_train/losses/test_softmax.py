"""Contract: MultiPositiveInfoNCE equals its loops, and the cross-entropy of CLIP if a query has one positive.

SoftTargetLoss equals its loops and torch's KL divergence.
"""

from __future__ import annotations

import math

import pytest
import torch
from tests.relabel_train.losses.batches import Batch, assert_equals_loops
from torch.nn import functional

from relabel_train.losses import MultiPositiveInfoNCE, SoftTargetLoss


def softmax(values: list[float], tau: float) -> list[float]:
    exps = [math.exp(v / tau) for v in values]
    return [e / sum(exps) for e in exps]


def test_soft_targets_equal_loops() -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        best = max(x for x, mine in zip(r, own, strict=True) if mine)
        target = softmax([best if mine else x for x, mine in zip(r, own, strict=True)], 0.3)
        return sum(t * (math.log(t) - math.log(f)) for t, f in zip(target, softmax(s, 0.1), strict=True))

    assert_equals_loops(SoftTargetLoss(0.1, 0.3), query, 1 / 18)


def test_soft_targets_equal_torch_kl_div(batch: Batch) -> None:
    target, log_probabilities = batch.relevance.softmax(dim=1), (batch.scores / 0.45).log_softmax(dim=1)
    expected = functional.kl_div(log_probabilities, target, reduction="batchmean")
    torch.testing.assert_close(SoftTargetLoss().terms(batch.scores, batch.relevance)["soft_target_i2t"] * 2, expected)


@pytest.mark.parametrize("positive", [None, 0.63])
def test_infonce_equals_loops(positive: float | None) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        mine = [j for j in range(len(s)) if own[j] or (positive is not None and r[j] >= positive - 1e-9)]
        log_sum = math.log(sum(math.exp(x / 0.07) for x in s))
        return -sum(s[j] / 0.07 - log_sum for j in mine) / len(mine)

    assert_equals_loops(MultiPositiveInfoNCE(positive=positive), query, 1 / 18)


def test_one_positive_is_clip(batch: Batch) -> None:
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
    with pytest.raises(ValueError, match="same_image"):
        MultiPositiveInfoNCE()(scores)
