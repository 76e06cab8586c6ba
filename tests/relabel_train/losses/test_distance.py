"""Contract: log-ratio and dense triplet losses equal loops over their triplets, for one anchor and for all.

Distances of near duplicates and their gradients are precise in float32, without memory for the differences of pairs.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from relabel_train.losses import DenseTripletLoss, LogRatioLoss
from relabel_train.losses.distance import squared_distances


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


class LargestTensor(TorchDispatchMode):
    """Number of elements of the largest result of an operator, and the names of the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.names = 0, set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.names.add(func.name())
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return result


@pytest.mark.parametrize("loss", [LogRatioLoss(), LogRatioLoss(squared=False), DenseTripletLoss()], ids=repr)
def test_memory_has_no_axis_of_width_by_pairs(loss: Any) -> None:
    """Check that no result is larger than the pairs; within cdist's gradient, a GPU holds the differences of all."""
    embeddings = torch.randn(64, 48, requires_grad=True)
    with LargestTensor() as largest:
        loss(embeddings, torch.rand(64, 64)).backward()
    assert largest.elements <= 2 * 64 * 64
    assert "aten::_cdist_backward" not in largest.names


def near_duplicates(offset: float) -> Tensor:
    """Return float32 vectors around an offset, half of which repeat the other half with changes of 0 to 1e-3."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(16, 32, generator=generator)
    changes = torch.logspace(-6, -3, 16)[:, None] * torch.randn(16, 32, generator=generator)
    changes[0] = 0
    return torch.cat([first, first + changes]) + offset


@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_distances_of_near_duplicates_are_precise(offset: float) -> None:
    """Check float32 against differences in float64, to 5 roundings; products in float32 have no correct digit here."""
    vectors = near_duplicates(offset)
    wide = vectors.double()
    exact = (wide[:, None, :] - wide[None, :, :]).square().sum(dim=2)
    torch.testing.assert_close(squared_distances(vectors, 32).double(), exact, rtol=5 * 2**-23, atol=0)
    products = wide.float().square().sum(dim=1)
    products = (products[:, None] + products - 2 * vectors @ vectors.T).clamp(min=0)
    assert ((products.double() - exact).abs() / exact.clamp(min=1e-30)).max().item() > 1


@pytest.mark.parametrize("offset", [0.0, 5.0])
@pytest.mark.parametrize("loss", [LogRatioLoss(), LogRatioLoss(squared=False), DenseTripletLoss()], ids=repr)
def test_gradients_of_near_duplicates_are_precise(loss: Any, offset: float) -> None:
    """Check float32 against autograd through differences in float64, relative to the largest gradient."""
    vectors = near_duplicates(offset)
    distances = torch.rand(32, 32, generator=torch.Generator().manual_seed(1))
    leaf = vectors.clone().requires_grad_()
    loss(leaf, distances).backward()
    wide = vectors.double().requires_grad_()
    prepared = loss.prepare(wide)
    apart = (prepared[:, None, :] - prepared[None, :, :]).square().sum(dim=2)
    used = ~torch.eye(32, dtype=torch.bool)
    loss.per_anchor(apart, distances.double(), used).mean().backward()
    assert leaf.grad is not None
    assert wide.grad is not None
    worst = (leaf.grad.double() - wide.grad).abs().max() / wide.grad.abs().max()
    assert worst.item() < 1e-6
