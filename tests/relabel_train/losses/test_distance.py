"""Contract: log-ratio and dense triplet losses equal loops over their triplets, for one anchor and for all.

Distances of near duplicates and their gradients are precise in float32, without memory for the differences of pairs.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from tests.relabel_train.losses.batches import with_gradient
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from relabel_train.losses import DenseTripletLoss, DistanceLoss, LogRatioLoss
from relabel_train.losses.distance import squared_distances

LOSSES = pytest.mark.parametrize("loss", [LogRatioLoss(), LogRatioLoss(squared=False), DenseTripletLoss()], ids=repr)

FORMS = [("log", None), ("log", "ties"), ("log", "plain"), ("hinge", None), ("hinge", "unit")]


def make_inputs(anchors: int, items: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """Return embeddings, tied label distances (including 0) and one sibling of anchor 0."""
    rng = random.Random(anchors)
    embeddings = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(items)]
    distances = [[rng.choice([0.0, 0.5, 0.7, rng.random()]) for _ in range(items)] for _ in range(anchors)]
    same = torch.eye(anchors, items, dtype=torch.bool)
    same[0, -3] = True
    return torch.tensor(embeddings, dtype=torch.float64), torch.tensor(distances, dtype=torch.float64), same


def squared(f: Tensor, a: int, i: int) -> float:
    return sum((x - y) ** 2 for x, y in zip(f[a].tolist(), f[i].tolist(), strict=True))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("anchors", [1, 4, 9])
@pytest.mark.parametrize(("kind", "option"), FORMS)
def test_equals_loops(anchors: int, kind: str, option: str | None, masked: bool) -> None:
    f, y, same = make_inputs(anchors)
    total, g = 0.0, f / f.norm(dim=1, keepdim=True) if option == "unit" else f
    for a in range(anchors):
        items = [i for i in range(9) if i != a and not (masked and same[a, i])]
        near = [(i, j) for i in items for j in items if y[a, i] < y[a, j]]
        tied = [(i, j) for i in items for j in items if i < j and y[a, i] == y[a, j] and option == "ties"]
        for i, j in near + tied:
            far = [squared(g, a, k) for k in (i, j)]
            if kind == "hinge":
                term = max(0.0, far[0] - far[1] + 0.03)
            else:
                far = [math.sqrt(d + 1e-4 / 4) if option == "plain" else d for d in far]
                left, right = (math.log(b + 1e-6) - math.log(c + 1e-6) for b, c in (far, (y[a, i], y[a, j])))
                term = (left - right) ** 2
            total += term / len(near + tied) / anchors
    log_ratio = LogRatioLoss(squared=option != "plain", ties=option == "ties", root_eps=1e-4 / 4)
    loss = log_ratio if kind == "log" else DenseTripletLoss(normalise=option == "unit")
    assert loss(f, y, same if masked else None).item() == pytest.approx(total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("positives", [1, 3, 20])
def test_binary_triplets_equal_loops(positives: int) -> None:
    """Check that items tied with the last positive are positives, and that without a negative the loss is 0."""
    f, y, same = make_inputs(4)
    total = 0.0
    for a in range(4):
        items = [i for i in range(9) if i != a and not same[a, i]]
        last = sorted(float(y[a, i]) for i in items)[: min(positives, len(items))][-1]
        near = [i for i in items if y[a, i] <= last]
        pairs = [(i, j) for i in near for j in items if j not in near]
        terms = [max(0.0, squared(f, a, i) - squared(f, a, j) + 0.2) for i, j in pairs]
        total += sum(terms) / max(1, len(terms)) / 4
    loss = DenseTripletLoss(margin=0.2, normalise=False, positives=positives)
    assert loss(f, y, same).item() == pytest.approx(total, rel=1e-9)
    assert (total == 0) == (positives == 20)
    with pytest.raises(ValueError, match="positives is 0"):
        DenseTripletLoss(positives=0)


@LOSSES
def test_gradient(loss: Any) -> None:
    f, y, _ = make_inputs(5)
    assert torch.autograd.gradcheck(lambda e: loss(e, y), f.requires_grad_())


@LOSSES
@pytest.mark.parametrize("size", [1, 2, 5])
def test_degenerate_batches_are_finite(loss: Any, size: int) -> None:
    """Check one item, no two distances, equal embeddings, and distances of 0."""
    for embeddings in (torch.ones(size, 3), torch.zeros(size, 3), torch.rand(size, 3)):
        for distances in (torch.zeros(size, size), torch.rand(size, size)):
            value, gradient = with_gradient(loss, embeddings, distances, torch.zeros(size, size, dtype=torch.bool))
            assert bool(value.isfinite() & gradient.isfinite().all())
            assert size >= 3 or value.item() == 0


@LOSSES
def test_wrong_inputs_are_named(loss: DistanceLoss) -> None:
    embeddings, distances = torch.rand(4, 2), torch.rand(4, 4)
    for wrong in (torch.rand(3, 5), torch.rand(5, 4), torch.ones(4, 4, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"distances are .*, not \(anchors, 4\)"):
            loss(embeddings, wrong)
    with pytest.raises(ValueError, match="same_image is"):
        loss(embeddings, distances, torch.ones(4, 4))
    for wrong_distance, message in ((torch.nan, "NaN"), (torch.inf, "inf"), (-0.5, "-0.5"), (-2e-6, "-2e-06")):
        distances[1, 3] = wrong_distance
        with pytest.raises(ValueError, match=f"the distance is {message} at row 1, column 3"):
            loss(embeddings, distances)


@LOSSES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_within_rounding_are_tied_and_not_below_0(loss: Any, dtype: torch.dtype) -> None:
    """Check 1 - r of equal captions, whose r is 1 up to the rounding of float32."""
    f, y, same = make_inputs(9)
    expected = with_gradient(loss, f, y, same)
    y += 5e-7 * (torch.rand(y.shape, generator=torch.Generator().manual_seed(0)) - 0.5)
    assert (y < 0).any()
    for found, exact in zip(with_gradient(loss, f.to(dtype), y.to(dtype), same), expected, strict=True):
        assert bool(found.isfinite().all())
        torch.testing.assert_close(found.double(), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
@LOSSES
def test_compiles_without_graph_breaks(loss: Any) -> None:
    torch._dynamo.reset()
    backend = "aot_eager" if isinstance(loss, LogRatioLoss) and loss.squared else "inductor"  # which takes most time
    inputs = torch.randn(12, 8), torch.rand(4, 12), torch.eye(4, 12) > 0
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for found, exact in zip(with_gradient(compiled, *inputs), with_gradient(loss, *inputs), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)


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


@LOSSES
def test_memory_has_no_axis_of_width_by_pairs(loss: Any) -> None:
    """Check that no result is larger than the pairs; within cdist's gradient, a GPU holds the differences of all."""
    with LargestTensor() as largest:
        with_gradient(loss, torch.randn(64, 48), torch.rand(64, 64))
    assert largest.elements <= 2 * 64 * 64
    assert "aten::_cdist_backward" not in largest.names


@pytest.fixture(params=[0.0, 5.0])
def near_duplicates(request: pytest.FixtureRequest) -> Tensor:
    """Return float32 vectors around an offset, half of which repeat the other half with changes of 0 to 1e-3."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(16, 32, generator=generator)
    changes = torch.logspace(-6, -3, 16)[:, None] * torch.randn(16, 32, generator=generator)
    changes[0] = 0
    return torch.cat([first, first + changes]) + float(request.param)


def differences(vectors: Tensor) -> Tensor:
    return (vectors[:, None, :] - vectors[None, :, :]).square().sum(dim=2)


def test_distances_of_near_duplicates_are_precise(near_duplicates: Tensor) -> None:
    """Check float32 against differences in float64, to 5 roundings."""
    exact = differences(near_duplicates.double())
    found = squared_distances(near_duplicates, 32).double()
    torch.testing.assert_close(found, exact, rtol=5 * 2**-23, atol=0)


@pytest.mark.parametrize("anchors", [1, 3, 5])
def test_second_derivatives_of_distances(anchors: int) -> None:
    vectors = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: squared_distances(x, anchors), vectors)


@LOSSES
def test_gradients_of_near_duplicates_are_precise(loss: Any, near_duplicates: Tensor) -> None:
    """Check float32 against autograd through differences in float64, relative to the largest gradient."""
    distances = torch.rand(32, 32, generator=torch.Generator().manual_seed(1))
    used = ~torch.eye(32, dtype=torch.bool)

    def wide(vectors: Tensor) -> Tensor:
        apart = differences(loss.prepare(vectors))
        mean: Tensor = loss.per_anchor(apart, distances.double(), used).mean()
        return mean

    _, expected = with_gradient(wide, near_duplicates.double())
    _, gradient = with_gradient(loss, near_duplicates, distances)
    assert ((gradient.double() - expected).abs().max() / expected.abs().max()).item() < 1e-6
