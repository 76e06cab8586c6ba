"""Contract: KendallLoss equals a loop over all ordered pairs; a label difference of exactly alpha does not count."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relabel_train.losses import KendallLoss


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.05])
def test_equals_loops(batch: Any, both_ways: Any, alpha: float, masked: bool) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        return sum(
            max(0.0, s[k] - s[j])
            for j in range(len(s))
            for k in range(len(s))
            if r[j] > r[k] + alpha + 1e-9 and not (masked and own[k])
        )

    value = KendallLoss(alpha)(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked), rel=1e-9, abs=1e-9)


def test_gradient(smooth: Any) -> None:
    scores, relevance = smooth(1, 5, 7)
    assert torch.autograd.gradcheck(lambda s: KendallLoss()(s, relevance), scores.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_difference_of_alpha_is_not_counted(dtype: torch.dtype) -> None:
    relevance = torch.tensor([[0.9, 0.7, 0.5, 0.3]], dtype=torch.float64).to(dtype)
    scores = torch.tensor([[0.0, 1.0, 1.0, 1.0]])
    assert KendallLoss(0.2).terms(scores, relevance)["kendall_i2t"].item() == pytest.approx(2)


def test_scores_need_not_be_square() -> None:
    relevance = torch.rand(3, 8)
    assert KendallLoss()(relevance.clone(), relevance).item() == 0
    assert KendallLoss()(-relevance, relevance).item() > 0


def test_small_hinges_of_many_pairs_are_precise() -> None:
    """Check terms of opposite sign, which are large and cancel."""
    ranks = torch.arange(512, dtype=torch.float32)
    scores = 1 + ranks[None] * 1e-6
    value = KendallLoss(0.0).terms(scores, -ranks[None])["kendall_i2t"]
    exact = (scores.double()[0, None, :] - scores.double()[0, :, None]).clamp(min=0).sum()
    assert value.item() == pytest.approx(exact.item(), rel=1e-6)
