"""Contract: SW-HS equals loops over its windows; labels on an edge fall on the documented side in every dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relabel_train.losses import SlidingWindowKendallLoss


def lows(edges: str, windows: int, beta: float) -> list[float]:
    first = {"upper": 1, "lower": 0, "all": 0}[edges]
    last = {"upper": windows, "lower": windows - 1, "all": windows}[edges]
    return [-1 + beta * m for m in range(first, last + 1)]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("alpha", "beta", "edges"), [(0.2, 0.1, "upper"), (0.2, 0.1, "lower"), (0.1, 0.05, "all")])
def test_equals_loops(batch: Any, both_ways: Any, alpha: float, beta: float, edges: Any, masked: bool) -> None:
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


def test_gradient(smooth: Any) -> None:
    scores, relevance = smooth(2, 7, 5)
    assert torch.autograd.gradcheck(lambda s: SlidingWindowKendallLoss()(s, relevance), scores.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_labels_on_every_edge(dtype: torch.dtype) -> None:
    """Check that label k / 10 is above the windows ending at or below it, and below those starting above it."""
    grid = [k / 10 for k in range(-10, 11)]
    relevance = torch.tensor([grid], dtype=torch.float64).to(dtype)
    scores = torch.rand(1, 21, generator=torch.Generator().manual_seed(0))
    loss = SlidingWindowKendallLoss()
    above, below, valid = loss.hardest_pairs(scores, relevance)
    assert bool(valid.all())
    s = scores[0].tolist()
    for m in range(1, 19):  # low = (m - 10) / 10 has index m, high has index m + 2
        assert above[0, m - 1].item() == min(range(m + 2, 21), key=s.__getitem__)
        assert below[0, m - 1].item() == max(range(m), key=s.__getitem__)


def test_the_last_window_contrasts_pairs_with_all_labels_below_it() -> None:
    relevance = torch.tensor([[1.0, 0.75], [0.75, 1.0]], dtype=torch.float64)
    scores = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert SlidingWindowKendallLoss(edges="upper")(scores, relevance).item() == pytest.approx(4 / 18)
    assert SlidingWindowKendallLoss(edges="all")(scores, relevance).item() == pytest.approx(4 / 18)
    assert SlidingWindowKendallLoss(edges="lower")(scores, relevance).item() == 0


@pytest.mark.parametrize("make", [lambda: SlidingWindowKendallLoss(2.0), lambda: SlidingWindowKendallLoss(0.2, 3.0)])
def test_windows_that_do_not_fit_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="no window of width"):
        make()


def test_other_ranges() -> None:
    """Check that CIDEr-D on 0..10 with windows of that range equals a shifted and scaled cosine."""
    generator = torch.Generator().manual_seed(4)
    relevance = torch.rand(6, 6, generator=generator, dtype=torch.float64) * 2 - 1
    scores = torch.rand(6, 6, generator=generator, dtype=torch.float64)
    wide = SlidingWindowKendallLoss(1.0, 0.5, low=0.0, high=10.0)
    assert wide.windows == 18
    torch.testing.assert_close(wide(scores, (relevance + 1) * 5), SlidingWindowKendallLoss()(scores, relevance))
