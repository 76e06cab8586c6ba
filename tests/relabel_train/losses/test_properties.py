"""Contract: the losses have the limits, bounds, windows, invariances and zeros that follow from their definitions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from relabel_train.losses import (
    KendallLoss,
    LadderLoss,
    LogRatioLoss,
    SAMLoss,
    SlidingWindowKendallLoss,
    SmoothNDCGLoss,
    TripletLoss,
)


@pytest.mark.parametrize("gamma", [1.0, 10.0, 50.0, 1000.0])
def test_soft_negatives_become_the_hardest(batch: Any, gamma: float) -> None:
    """Check 0 <= TSN - HN <= 2 B ln(B) / gamma, where both losses have the negatives r < 1."""
    same = batch.relevance >= 1
    soft = TripletLoss(negatives="soft", gamma=gamma)(batch.scores, batch.relevance)
    hard = TripletLoss()(batch.scores, batch.relevance, same)
    assert -1e-12 <= (soft - hard).item() <= 2 * 9 * math.log(9) / gamma


def test_a_perfect_order_has_loss_0(smooth: Any, batch: Any) -> None:
    for relevance in (smooth(0)[1], batch.relevance):  # labels without and with ties
        assert KendallLoss(0.0)((relevance * 3).exp(), relevance).item() == 0
        assert KendallLoss(0.0)(-relevance, relevance).item() > 0


def test_the_hardest_pairs_bound_sw_hs(batch: Any) -> None:
    most = 0.0
    for s, r in ((batch.scores, batch.relevance), (batch.scores.T, batch.relevance.T)):
        counted = r[:, :, None] > r[:, None, :] + 0.2
        most = max(most, ((s[:, None, :] - s[:, :, None]) * counted).max().item())
    assert 0 < SlidingWindowKendallLoss()(batch.scores, batch.relevance).item() <= most * 2 * 9 + 1e-12


@pytest.mark.parametrize(("alpha", "beta", "windows"), [(0.2, 0.1, 18), (0.1, 0.05, 38), (0.2, 0.2, 9)])
@pytest.mark.parametrize("edges", ["upper", "lower", "all"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_windows(irregular: Any, alpha: float, beta: float, windows: int, edges: Any, dtype: torch.dtype) -> None:
    loss = SlidingWindowKendallLoss(alpha, beta, edges=edges)
    assert loss.windows == windows
    assert len(loss.lower_edges(torch.zeros(1))) == windows + (edges == "all")
    pairs = 0
    for seed in range(5):
        relevance = irregular(seed).relevance.to(dtype)
        above, below, valid = loss.hardest_pairs(irregular(seed).scores, relevance)
        gap = (relevance.gather(1, above) - relevance.gather(1, below))[valid].double()
        assert bool((gap > alpha - 1e-6).all())
        pairs += len(gap)
    assert pairs > 0


def hard_ndcg(scores: Tensor, relevance: Tensor) -> float:
    """Compute 1 - NDCG with hard ranks, summed over rows and columns."""
    total = 0.0
    for s, r in ((scores, relevance), (scores.T, relevance.T)):
        for row, labels in zip(s.tolist(), r.tolist(), strict=True):
            gains = [2 ** ((1 + x) / 2) - 1 for x in labels]
            order = sorted(range(len(row)), key=lambda j: -row[j])
            dcg = sum(gains[j] / math.log2(2 + place) for place, j in enumerate(order))
            ideal = sum(g / math.log2(2 + place) for place, g in enumerate(sorted(gains, reverse=True)))
            total += 1 - dcg / ideal
    return total


def test_small_tau_is_the_hard_ndcg(smooth: Any) -> None:
    scores, relevance = smooth(4)
    value = SmoothNDCGLoss(1e-6, ideal="sorted", reduction="sum")(scores, relevance)
    assert value.item() == pytest.approx(hard_ndcg(scores, relevance), abs=1e-9)


def test_range_and_shift(batch: Any) -> None:
    loss = SmoothNDCGLoss(ideal="sorted")
    for value in loss.terms(batch.scores, batch.relevance).values():
        assert 0 <= value.item() < 1
    torch.testing.assert_close(loss(batch.scores + 0.3, batch.relevance), loss(batch.scores, batch.relevance))


@pytest.mark.parametrize("contrast", [("hard", "hardest"), ("sum", "sum")])
def test_a_ladder_of_one_level_is_the_triplet_loss(batch: Any, contrast: Any) -> None:
    ladder = LadderLoss((0.63, 0.3), weights=(1, 0, 0), contrast=contrast[0])
    for same in (None, batch.same_image):
        expected = TripletLoss(negatives=contrast[1])(batch.scores, batch.relevance, same)
        torch.testing.assert_close(ladder(batch.scores, batch.relevance, same), expected)


@pytest.mark.parametrize("sampling", ["hard", "soft"])
def test_constant_relevance_has_no_margin(batch: Any, sampling: Any) -> None:
    """Check that a sampled negative then costs [s_n - s_p]_+."""
    loss = SAMLoss(sampling=sampling)
    own_items = torch.eye(9, dtype=torch.bool)
    expected = 0.0
    for s in (batch.scores, batch.scores.T):
        sampled = s.gather(1, loss.pick_largest(loss.sampling_keys(s, own_items)[0], s, 1)[0][:, None])[:, 0]
        expected += (sampled - s.diagonal()).clamp(min=0).sum().item()
    assert loss(batch.scores, torch.full((9, 9), 4.2).double()).item() == pytest.approx(expected)


def test_relevance_and_tau_scale_together(batch: Any) -> None:
    relevance = batch.relevance * 5
    torch.testing.assert_close(
        SAMLoss(30, "hard")(batch.scores, relevance * 10), SAMLoss(3, "hard")(batch.scores, relevance)
    )


@pytest.mark.parametrize("ties", [False, True])
def test_log_ratio_has_no_scale(ties: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(9, 5, generator=generator, dtype=torch.float64)
    distances = (torch.rand(9, 9, generator=generator, dtype=torch.float64) * 8).ceil()
    loss = LogRatioLoss(eps=0, ties=ties)
    expected = loss(embeddings, distances)
    torch.testing.assert_close(loss(embeddings, distances * 7), expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(loss(embeddings * 3, distances), expected, rtol=1e-10, atol=0)
    small = LogRatioLoss(ties=ties)(embeddings, distances * 7)
    torch.testing.assert_close(small, expected, rtol=1e-4, atol=0)


def test_proportional_distances_have_loss_0() -> None:
    embeddings = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    distances = torch.cdist(embeddings, embeddings) ** 2 * 2.5
    assert LogRatioLoss(eps=0)(embeddings, distances).item() == pytest.approx(0, abs=1e-12)
    plain = LogRatioLoss(squared=False, eps=0, root_eps=0)
    assert plain(embeddings, (distances / 2.5).sqrt() * 4).item() == pytest.approx(0, abs=1e-12)
