"""Contract: MultiPositiveInfoNCE equals its loops, and CLIP's cross-entropy if a query has one positive."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from relabel_train.losses import MultiPositiveInfoNCE


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("positive", [None, 0.63])
def test_equals_loops(batch: Any, both_ways: Any, positive: float | None, masked: bool) -> None:
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


def test_gradient(smooth: Any) -> None:
    scores, _ = smooth(2)
    assert torch.autograd.gradcheck(lambda s: MultiPositiveInfoNCE(0.5)(s), scores.requires_grad_())
