"""Contract: KendallLoss equals a loop over all ordered pairs; a label difference of exactly alpha does not count.

SW-HS equals loops over its windows; labels on an edge fall on the documented side in every dtype. BCLSLoss is the sum
of its two named parts.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relabel_train.losses import BCLSLoss, KendallLoss, SlidingWindowKendallLoss, TripletLoss


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


def test_small_hinges_of_many_pairs_are_precise() -> None:
    """Check terms of opposite sign, which are large and cancel."""
    ranks = torch.arange(512, dtype=torch.float32)
    scores = 1 + ranks[None] * 1e-6
    value = KendallLoss(0.0).terms(scores, -ranks[None])["kendall_i2t"]
    exact = (scores.double()[0, None, :] - scores.double()[0, :, None]).clamp(min=0).sum()
    assert value.item() == pytest.approx(exact.item(), rel=1e-6)


def lows(edges: str, windows: int, beta: float) -> list[float]:
    first = {"upper": 1, "lower": 0, "all": 0}[edges]
    last = {"upper": windows, "lower": windows - 1, "all": windows}[edges]
    return [-1 + beta * m for m in range(first, last + 1)]


@pytest.mark.parametrize(("alpha", "beta"), [(0.25, 0.1), (0.24, 0.1), (0.2, 3.0)])
def test_a_pair_is_contrasted_with_all_labels_a_window_below_it(alpha: float, beta: float) -> None:
    """Check that rounding up leaves no window above all labels."""
    relevance = torch.tensor([[1.0, 0.99 - alpha]], dtype=torch.float64)
    scores = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    loss = SlidingWindowKendallLoss(alpha, beta)
    assert loss.terms(scores, relevance)["kendall_i2t"].item() == pytest.approx(1 / loss.windows)
    every = SlidingWindowKendallLoss(alpha, beta, edges="all")
    assert every(scores, relevance).item() == loss(scores, relevance).item()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("alpha", "beta", "edges"), [(0.2, 0.1, "upper"), (0.2, 0.1, "lower"), (0.1, 0.05, "all")])
def test_windows_equals_loops(batch: Any, both_ways: Any, alpha: float, beta: float, edges: Any, masked: bool) -> None:
    windows = round((2 - alpha) / beta)

    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        total = 0.0
        for low in lows(edges, windows, beta):
            above = [s[j] for j in range(len(s)) if r[j] >= low + alpha - 1e-9]
            below = [s[j] for j in range(len(s)) if r[j] < low - 1e-9 and not (masked and own[j])]
            if above and below:
                total += max(0.0, max(below) - min(above))
        return total / windows

    loss = SlidingWindowKendallLoss(alpha, beta, edges=edges)
    value = loss(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked), rel=1e-9, abs=1e-9)


def test_windows_gradient(smooth: Any) -> None:
    scores, relevance = smooth(2, 7, 5)
    assert torch.autograd.gradcheck(lambda s: SlidingWindowKendallLoss()(s, relevance), scores.requires_grad_())


def test_the_last_window_contrasts_pairs_with_all_labels_below_it() -> None:
    relevance = torch.tensor([[1.0, 0.75], [0.75, 1.0]], dtype=torch.float64)
    scores = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert SlidingWindowKendallLoss(edges="upper")(scores, relevance).item() == pytest.approx(4 / 18)
    assert SlidingWindowKendallLoss(edges="all")(scores, relevance).item() == pytest.approx(4 / 18)
    assert SlidingWindowKendallLoss(edges="lower")(scores, relevance).item() == 0


@pytest.mark.parametrize("make", [lambda: SlidingWindowKendallLoss(2.0), lambda: SlidingWindowKendallLoss(0.2, 4.0)])
def test_windows_that_do_not_fit_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="no window of width"):
        make()


def test_is_the_sum_of_its_parts(batch: Any) -> None:
    inputs = (batch.scores, batch.relevance, batch.same_image)
    triplet, kendall = TripletLoss(negatives="soft")(*inputs), SlidingWindowKendallLoss()(*inputs)
    torch.testing.assert_close(BCLSLoss()(*inputs), triplet + kendall)
    torch.testing.assert_close(BCLSLoss(weight=3)(*inputs), triplet + 3 * kendall)
    assert set(BCLSLoss().terms(*inputs)) == {f"{p}.{p}_{d}" for p in ("triplet", "kendall") for d in ("i2t", "t2i")}
