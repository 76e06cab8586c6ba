"""Contract: log-ratio and dense triplet losses equal loops over their triplets, for one anchor and for all."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from relabel_train.losses import DenseTripletLoss, LogRatioLoss


def make_inputs(seed: int, anchors: int, items: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """Return embeddings, tied label distances (including 0) and one sibling of anchor 0."""
    rng = random.Random(seed)
    embeddings = torch.tensor([[rng.gauss(0, 1) for _ in range(4)] for _ in range(items)], dtype=torch.float64)
    distances = [[rng.choice([0.0, 0.5, 0.7, rng.random()]) for _ in range(items)] for _ in range(anchors)]
    same = torch.eye(anchors, items, dtype=torch.bool)
    same[0, 6] = True
    return embeddings, torch.tensor(distances, dtype=torch.float64), same


def squared(f: Tensor, a: int, i: int) -> float:
    return sum((x - y) ** 2 for x, y in zip(f[a].tolist(), f[i].tolist(), strict=True))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("anchors", [1, 4, 9])
@pytest.mark.parametrize(("plain", "ties"), [(False, False), (False, True), (True, False)])
def test_log_ratio_equals_loops(anchors: int, plain: bool, ties: bool, masked: bool) -> None:
    f, y, same = make_inputs(anchors, anchors)
    total = 0.0
    for a in range(anchors):
        items = [i for i in range(9) if i != a and not (masked and same[a, i])]
        pairs = [(i, j) for i in items for j in items if y[a, i] < y[a, j] or (ties and y[a, i] == y[a, j] and i < j)]
        mean = 0.0
        for i, j in pairs:
            far = [squared(f, a, k) if not plain else math.sqrt(squared(f, a, k) + 1e-4 / 4) for k in (i, j)]
            left = math.log(far[0] + 1e-6) - math.log(far[1] + 1e-6)
            right = math.log(y[a, i] + 1e-6) - math.log(y[a, j] + 1e-6)
            mean += (left - right) ** 2 / len(pairs)
        total += mean / anchors
    loss = LogRatioLoss(squared=not plain, ties=ties, root_eps=1e-4 / 4)
    assert loss(f, y, same if masked else None).item() == pytest.approx(total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("anchors", [1, 4, 9])
@pytest.mark.parametrize("normalise", [True, False])
def test_dense_triplet_equals_loops(anchors: int, normalise: bool, masked: bool) -> None:
    f, y, same = make_inputs(anchors, anchors)
    g = f / f.norm(dim=1, keepdim=True) if normalise else f
    total = 0.0
    for a in range(anchors):
        items = [i for i in range(9) if i != a and not (masked and same[a, i])]
        pairs = [(i, j) for i in items for j in items if y[a, i] < y[a, j]]
        hinges = [max(0.0, squared(g, a, i) - squared(g, a, j) + 0.03) for i, j in pairs]
        total += sum(hinges) / len(pairs) / anchors
    loss = DenseTripletLoss(normalise=normalise)
    assert loss(f, y, same if masked else None).item() == pytest.approx(total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("loss", [LogRatioLoss(), LogRatioLoss(squared=False), DenseTripletLoss()], ids=repr)
def test_gradient(loss: Any) -> None:
    f, y, _ = make_inputs(3, 5)
    assert torch.autograd.gradcheck(lambda e: loss(e, y), f.requires_grad_())


@pytest.mark.parametrize("loss", [LogRatioLoss(), LogRatioLoss(squared=False), DenseTripletLoss()], ids=repr)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_degenerate_batches_are_finite(loss: Any, size: int) -> None:
    """Check one item, no two distances, equal embeddings, and distances of 0."""
    for embeddings in (torch.ones(size, 3), torch.zeros(size, 3), torch.rand(size, 3)):
        for distances in (torch.zeros(size, size), torch.rand(size, size)):
            leaf = embeddings.clone().requires_grad_()
            value = loss(leaf, distances, torch.zeros(size, size, dtype=torch.bool))
            value.backward()
            assert leaf.grad is not None
            assert bool(value.isfinite())
            assert bool(leaf.grad.isfinite().all())
            if size < 3:
                assert value.item() == 0


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        (torch.rand(3, 5), r"distances are \(3, 5\) float32, not \(anchors, 4\) floats"),
        (torch.rand(5, 4), "not \\(anchors, 4\\)"),
        (torch.ones(4, 4, dtype=torch.int64), "int64"),
    ],
)
def test_shapes_are_checked(distances: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogRatioLoss()(torch.rand(4, 2), distances)
    with pytest.raises(ValueError, match="same_image is"):
        LogRatioLoss()(torch.rand(4, 2), torch.rand(4, 4), torch.ones(4, 4))


@pytest.mark.parametrize("loss", [LogRatioLoss(), DenseTripletLoss()], ids=repr)
def test_nan_distances_are_refused(loss: Any) -> None:
    distances = torch.rand(4, 4)
    distances[1, 3] = torch.nan
    with pytest.raises(ValueError, match="the distance is NaN at row 1, column 3; leave captions without a label out"):
        loss(torch.rand(4, 2), distances)
