"""Contract: S-NDCG equals its loops, alone and with the triplet loss; chunks change neither value nor gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.relabel_train.losses.batches import Batch, assert_equals_loops, make_smooth, with_gradient

from relabel_train.losses import SmoothNDCGLoss, SmoothNDCGTripletLoss, TripletLoss, smooth_ndcg


@pytest.mark.parametrize("ideal", ["paper", "sorted"])
@pytest.mark.parametrize("tau", [0.01, 0.3])
def test_equals_loops(tau: float, ideal: Any) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        best = max(x for x, mine in zip(r, own, strict=True) if mine)
        unit = [(1 + (best if mine else x)) / 2 for x, mine in zip(r, own, strict=True)]
        size, gains = range(len(s)), [2**x - 1 for x in unit]
        ranks = [1 + sum(1 / (1 + math.exp(-(s[k] - s[j]) / tau)) for k in size if k != j) for j in size]
        idcg = sum(g / math.log2(2 + place) for place, g in enumerate(sorted(gains, reverse=True)))
        if ideal == "paper":
            idcg = sum(gains[j] / math.log2(2 + sum(unit[k] > unit[j] for k in size)) for j in size)
        return 1 - sum(gains[j] / math.log2(1 + ranks[j]) for j in size) / idcg

    assert_equals_loops(SmoothNDCGLoss(tau, ideal=ideal), query, 1 / 9)


def test_labels_in_the_unit_interval_are_unchanged(batch: Batch) -> None:
    unit = SmoothNDCGLoss(labels="unit")(batch.scores, (1 + batch.relevance) / 2)
    torch.testing.assert_close(unit, SmoothNDCGLoss()(batch.scores, batch.relevance))


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for chunk in (1, 20, 49, 3 * 49, 1 << 22):
        monkeypatch.setitem(smooth_ndcg.CHUNK, "cpu", chunk)
        results.append(with_gradient(SmoothNDCGLoss(0.2), *make_smooth(0, 7, 7)))
    for value, gradient in results[1:]:
        torch.testing.assert_close(value, results[0][0], rtol=1e-13, atol=0)
        torch.testing.assert_close(gradient, results[0][1], rtol=1e-11, atol=1e-15)


def test_no_gain_has_loss_0() -> None:
    value, gradient = with_gradient(SmoothNDCGLoss(), torch.rand(3, 3), torch.full((3, 3), -1.0))
    assert (value.item(), gradient.abs().max().item()) == (0, 0)


def test_with_the_triplet_loss(batch: Batch) -> None:
    triplet, listwise = TripletLoss(reduction="mean")(*batch.all), SmoothNDCGLoss()(*batch.all)
    torch.testing.assert_close(SmoothNDCGTripletLoss()(*batch.all), triplet + listwise)
    torch.testing.assert_close(SmoothNDCGTripletLoss(weight=0.3)(*batch.all), 0.7 * triplet + 0.3 * listwise)
