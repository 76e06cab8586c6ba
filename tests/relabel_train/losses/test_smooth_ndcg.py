"""Contract: S-NDCG equals its loops, alone and with the triplet loss; chunks change neither value nor gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from relabel_train.losses import SmoothNDCGLoss, smooth_ndcg


def ndcg_loss(s: list[float], r: list[float], tau: float, ideal: str) -> float:
    size = range(len(s))
    unit = [(1 + x) / 2 for x in r]
    gains = [2**x - 1 for x in unit]
    ranks = [1 + sum(1 / (1 + math.exp(-(s[k] - s[j]) / tau)) for k in size if k != j) for j in size]
    if ideal == "paper":
        best = [1 + sum(unit[k] > unit[j] for k in size) for j in size]
        idcg = sum(gains[j] / math.log2(1 + best[j]) for j in size)
    else:
        idcg = sum(g / math.log2(2 + place) for place, g in enumerate(sorted(gains, reverse=True)))
    return 1 - sum(gains[j] / math.log2(1 + ranks[j]) for j in size) / idcg


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ideal", ["paper", "sorted"])
@pytest.mark.parametrize("tau", [0.01, 0.3])
def test_equals_loops(batch: Any, both_ways: Any, tau: float, ideal: Any, masked: bool) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        best = max(x for x, mine in zip(r, own, strict=True) if mine)
        return ndcg_loss(s, [best if mine and masked else x for x, mine in zip(r, own, strict=True)], tau, ideal)

    loss = SmoothNDCGLoss(tau, ideal=ideal)
    value = loss(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked) / 9, rel=1e-9, abs=1e-9)


def test_chunks_change_nothing(smooth: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, relevance = smooth(0, 7, 7)
    results = []
    for chunk in (1, 20, 49, 3 * 49, 1 << 22):
        monkeypatch.setitem(smooth_ndcg.CHUNK, "cpu", chunk)
        leaf = scores.clone().requires_grad_()
        loss = SmoothNDCGLoss(0.2)(leaf, relevance)
        loss.backward()
        assert leaf.grad is not None
        results.append((loss.detach(), leaf.grad))
    for value, grad in results[1:]:
        torch.testing.assert_close(value, results[0][0], rtol=1e-13, atol=0)
        torch.testing.assert_close(grad, results[0][1], rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (4, 6)])
def test_gradient(smooth: Any, rows: int, columns: int) -> None:
    scores, relevance = smooth(1, rows, columns)
    assert torch.autograd.gradcheck(lambda s: SmoothNDCGLoss(0.3)(s, relevance), scores.requires_grad_())


def test_no_gain_has_loss_0() -> None:
    scores = torch.rand(3, 3, requires_grad=True)
    loss = SmoothNDCGLoss()(scores, torch.full((3, 3), -1.0))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert bool((scores.grad == 0).all())


def test_two_equal_labels_have_a_positive_minimum_with_the_papers_ideal() -> None:
    relevance = torch.tensor([[1.0, 1.0, -1.0]])
    scores = torch.tensor([[1.0, 0.5, 0.0]])
    assert SmoothNDCGLoss(ideal="sorted").terms(scores, relevance)["ndcg_i2t"].item() == pytest.approx(0, abs=1e-6)
    floor = 1 - (1 + 1 / math.log2(3)) / 2
    assert SmoothNDCGLoss().terms(scores, relevance)["ndcg_i2t"].item() == pytest.approx(floor, abs=1e-6)
