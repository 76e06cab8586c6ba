"""Contract: KendallLoss equals a loop over all ordered pairs; a label difference of exactly alpha does not count.

SW-HS and the sum over all pairs of all windows equal loops over windows; labels on an edge fall on the documented side
in every dtype. BCLSLoss is the sum of its two named parts.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.relabel_train.losses.batches import Batch, assert_equals_loops, make_smooth

from relabel_train.losses import BCLSLoss, KendallLoss, SlidingWindowKendallLoss, TripletLoss

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])


def tensor(*rows: list[float], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.05])
def test_equals_loops(alpha: float) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        pairs = [(j, k) for j in range(len(s)) for k in range(len(s)) if r[j] > r[k] + alpha + 1e-9 and not own[k]]
        return sum(max(0.0, s[k] - s[j]) for j, k in pairs)

    assert_equals_loops(KendallLoss(alpha), query)


@DTYPES
def test_a_difference_of_alpha_is_not_counted(dtype: torch.dtype) -> None:
    terms = KendallLoss(0.2).terms(tensor([0.0, 1.0, 1.0, 1.0]).float(), tensor([0.9, 0.7, 0.5, 0.3], dtype=dtype))
    assert terms["kendall_i2t"].item() == pytest.approx(2)


def test_small_hinges_of_many_pairs_are_precise() -> None:
    """Check terms of opposite sign, which are large and cancel."""
    ranks = torch.arange(512, dtype=torch.float32)
    scores = 1 + ranks[None] * 1e-6
    value = KendallLoss(0.0).terms(scores, -ranks[None])["kendall_i2t"]
    exact = (scores.double()[0, None, :] - scores.double()[0, :, None]).clamp(min=0).sum()
    assert value.item() == pytest.approx(exact.item(), rel=1e-6)


# The second is 37.99999999999999 in float64; the others are rounded from 17.4, 17.5, 16.5 and 0.6.
WINDOWS = [(0.2, 0.1, 18), (0.1, 0.05, 38), (0.26, 0.1, 17), (0.25, 0.1, 18), (0.35, 0.1, 17), (0.2, 3.0, 1)]


@pytest.mark.parametrize("edges", ["upper", "lower", "all"])
@pytest.mark.parametrize(("alpha", "beta", "windows"), WINDOWS)
def test_windows_are_rounded_and_end_in_the_range(alpha: float, beta: float, windows: int, edges: Any) -> None:
    loss = SlidingWindowKendallLoss(alpha, beta, edges=edges)
    assert loss.windows == windows
    last = min(-1 + beta * (windows - (edges == "lower")), 1 - alpha)  # never above all labels, if M is rounded up
    expected = [last - beta * n for n in reversed(range(windows + (edges == "all")))]
    assert loss.lower_edges(torch.zeros(1, dtype=torch.float64)).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("pairs", ["hardest", "all"])
@pytest.mark.parametrize(("alpha", "beta", "edges"), [(0.2, 0.1, "upper"), (0.2, 0.1, "lower"), (0.1, 0.05, "all")])
def test_windows_equal_loops(alpha: float, beta: float, edges: Any, pairs: Any) -> None:
    windows = round((2 - alpha) / beta)

    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        total = 0.0
        for m in range(int(edges == "upper"), windows + (edges != "lower")):
            low = -1 + beta * m
            above = [s[j] for j in range(len(s)) if r[j] >= low + alpha - 1e-9]
            below = [s[j] for j in range(len(s)) if r[j] < low - 1e-9 and not own[j]]
            if pairs == "all":
                total += sum(max(0.0, k - j) for j in above for k in below)
            elif above and below:
                total += max(0.0, max(below) - min(above)) / windows
        return total

    assert_equals_loops(SlidingWindowKendallLoss(alpha, beta, edges=edges, pairs=pairs), query)


@DTYPES
def test_labels_on_every_edge(dtype: torch.dtype) -> None:
    """Check that label k / 10 is above the windows ending at or below it, and below those starting above it."""
    relevance = tensor([k / 10 for k in range(-10, 11)], dtype=dtype)
    scores = torch.rand(1, 21, generator=torch.Generator().manual_seed(0))
    above, below, valid = SlidingWindowKendallLoss().hardest_pairs(scores, relevance)
    assert bool(valid.all())
    s = scores[0].tolist()
    total = 0.0
    for m in range(1, 19):  # low = (m - 10) / 10 has index m, high has index m + 2
        assert above[0, m - 1].item() == min(range(m + 2, 21), key=s.__getitem__)
        assert below[0, m - 1].item() == max(range(m), key=s.__getitem__)
        total += sum(max(0.0, s[k] - s[j]) for j in range(m + 2, 21) for k in range(m))
    every = SlidingWindowKendallLoss(pairs="all").terms(scores, relevance)["kendall_i2t"]
    assert every.item() == pytest.approx(total, rel=1e-5)


def test_windows_that_do_not_fit_are_refused() -> None:
    for alpha, beta in ((2.0, 0.1), (0.2, 4.0)):
        with pytest.raises(ValueError, match=f"width {alpha} and stride {beta}"):
            SlidingWindowKendallLoss(alpha, beta)


def test_other_ranges() -> None:
    """Check that CIDEr-D on 0..10 with windows of that range equals a shifted and scaled cosine."""
    scores, relevance = make_smooth(4)
    wide = SlidingWindowKendallLoss(1.0, 0.5, low=0.0, high=10.0)
    assert wide.windows == 18
    torch.testing.assert_close(wide(scores, (relevance + 1) * 5), SlidingWindowKendallLoss()(scores, relevance))


def test_is_the_sum_of_its_parts(batch: Batch) -> None:
    triplet, kendall = TripletLoss(negatives="soft")(*batch.all), SlidingWindowKendallLoss()(*batch.all)
    for weight in (0, 1, 3):
        torch.testing.assert_close(BCLSLoss(weight=weight)(*batch.all), triplet + weight * kendall)
    assert set(BCLSLoss().terms(*batch.all)) == {f"{p}.{p}_{d}" for p in ("triplet", "kendall") for d in ("i2t", "t2i")}
