"""Contract: every loss of scores has consistent terms, gradients, dtypes, devices, compilation, errors, finite edge
cases, and the documented treatment of siblings.
"""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.relabel_train.losses.batches import IRREGULAR, Batch, make_irregular, make_smooth, with_gradient
from torch import nn

from relabel_train import losses

PAIRWISE: list[nn.Module] = [losses.TripletLoss(negatives=kind) for kind in ("hardest", "sum", "soft")]
PAIRWISE += [losses.KendallLoss(), losses.SlidingWindowKendallLoss(), losses.BCLSLoss()]
PAIRWISE += [losses.TripletLoss(below=1.0), losses.SlidingWindowKendallLoss(pairs="all")]
PAIRWISE += [losses.LadderLoss(), losses.LadderLoss((0.63, 0.3), contrast="sum"), losses.LadderLoss(sets="cumulative")]
PAIRWISE += [losses.SAMLoss(sampling=kind, margin_of="query") for kind in ("hard", "soft")]
LISTWISE: list[nn.Module] = [losses.SmoothNDCGLoss(), losses.SmoothNDCGLoss(ideal="sorted"), losses.SoftTargetLoss()]
LISTWISE += [losses.MultiPositiveInfoNCE(), losses.GradedSigmoidLoss(labels="cosine")]
RELEASED_SAM = losses.SAMLoss(sampling="hard", form="released", clamp=1.0)
FIXED = [*PAIRWISE, *LISTWISE, losses.SmoothNDCGTripletLoss(), losses.LadderLoss(sets="cumulative", fillers=True)]
FIXED += [losses.TripletLoss(reduction="mean", directions="mean"), losses.SAMLoss(sampling="hard"), RELEASED_SAM]
RANDOM_SAM = losses.SAMLoss()
ALL = [*FIXED, RANDOM_SAM]


def over(some: list[nn.Module]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("loss", some, ids=[type(loss).__name__ for loss in some])


@over(FIXED)
def test_terms_order_and_layout(batch: Batch, loss: Any) -> None:
    """Check that terms sum to the loss, that neither the order of the batch nor strides change it, and no input."""
    expected, terms = loss(*batch.all), loss.terms(*batch.all)
    assert all(name.endswith(("_i2t", "_t2i")) for name in terms)
    torch.testing.assert_close(sum(terms.values()), expected)
    assert torch.equal(loss(*(t.T.contiguous().T for t in batch.all)), expected)
    if loss is not RELEASED_SAM:  # it takes the second of tied items by their order
        order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(loss(*(t[order][:, order] for t in batch.all)), expected)
    inputs = [t.clone().requires_grad_(t.is_floating_point()) for t in batch.all]
    loss(*inputs).backward()
    assert inputs[1].grad is None
    assert all(torch.equal(before, after) for before, after in zip(batch.all, inputs, strict=True))


@over(FIXED)
def test_gradient(loss: Any) -> None:
    shape = (6, 6) if getattr(loss, "paired", True) else (4, 5)
    for seed in (1, 2, 3):
        scores, relevance = make_smooth(seed, *shape)
        inputs = (scores.requires_grad_(), relevance, torch.eye(*shape) > 0)
        assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("size", [1, 2, 5])
@over(ALL)
def test_empty_sets_are_finite(loss: Any, size: int) -> None:
    """Check no negative, empty levels and windows, all labels equal, one pair, and all scores equal."""
    even = [torch.full((size, size), label) for label in (-1.0, 0.0, 0.63, 0.8, 1.0)]
    for relevance in (*even, torch.eye(size), torch.rand(size, size)):
        for same in (None, torch.eye(size).bool(), torch.ones(size, size, dtype=torch.bool)):
            for scores in (torch.zeros(size, size), torch.rand(size, size) * 2 - 1):
                value, gradient = with_gradient(loss, scores, relevance, same)
                assert bool(value.isfinite() & gradient.isfinite().all()), (relevance, same, scores)


@over(PAIRWISE)
def test_no_negatives_give_loss_0(loss: Any) -> None:
    """Check batches in which all items are a query's own, and a batch of one."""
    for size, same in ((1, None), (4, torch.ones(4, 4, dtype=torch.bool))):
        value, gradient = with_gradient(loss, torch.rand(size, size), torch.ones(size, size), same)
        assert (value.item(), gradient.abs().max().item()) == (0, 0)


@over(PAIRWISE)
def test_siblings_are_never_negatives(loss: Any) -> None:
    """Check that a higher score of a sibling never costs more, however low its label; without the mask it does."""
    pushed = False
    for batch in map(make_irregular, range(6)):
        scores, relevance = batch.scores.clone(), batch.relevance.clone()
        for i, j in ((2, 5), (5, 2)):
            scores[i, j], relevance[i, j] = 0.95, 0.1
        slopes = [with_gradient(loss, scores, relevance, same)[1] for same in (batch.same_image, None)]
        masked, unmasked = (max(slope[2, 5].item(), slope[5, 2].item()) for slope in slopes)
        assert masked <= 0
        pushed |= unmasked > 0
    # The furthest negative is never the one of score 0.95.
    assert pushed or getattr(loss, "sampling", "hard") == "soft"


@over(LISTWISE)
def test_siblings_and_pairs_are_interchangeable(batch: Batch, loss: Any) -> None:
    """Check that the sibling's label is ignored, and that its score may be exchanged with the pair's."""
    other = batch.relevance.clone()
    other[2, 5] = other[5, 2] = -0.9
    torch.testing.assert_close(loss(batch.scores, other, batch.same_image), loss(*batch.all))
    results = []
    for pair in ((0.9, 0.2), (0.2, 0.9)):
        scores = batch.scores.clone()
        scores[2, 2], scores[2, 5] = pair
        terms = loss.terms(scores, batch.relevance, batch.same_image)
        results.append({name: value for name, value in terms.items() if name.endswith("i2t")})
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@over(FIXED)
def test_dtypes(loss: Any, dtype: torch.dtype) -> None:
    """Compare rounded scores and labels with the same numbers in float64, computed in float32."""
    scores, relevance, same = IRREGULAR[0].all
    exact = (relevance * 4).round() / 4
    expected, slope = with_gradient(loss, scores.to(dtype).double(), exact, same)
    for label_dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        value, gradient = with_gradient(loss, scores.to(dtype), exact.to(label_dtype), same)
        assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-4)
        if dtype == torch.float32:  # gradients of the other dtypes are rounded to few digits
            torch.testing.assert_close(gradient.double(), slope, rtol=1e-3, atol=1e-3)


@over(ALL)
def test_wrong_inputs_are_named(loss: Any) -> None:
    """Check shapes, dtypes and missing labels; a loss without labels does not read them."""
    square, ones = torch.rand(3, 3), torch.ones(3, 3)
    for scores, relevance, same, message in (
        (torch.rand(3), square, None, r"scores are \(3,\)"),
        (torch.rand(0, 0), square, None, "scores are"),
        (ones.long(), square, None, "scores are .* int64"),
        (square, torch.rand(3, 4), None, r"relevance is \(3, 4\)"),
        (square, ones.bool(), None, "relevance is"),
        (square, square, ones, "same_image is"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(scores, relevance, same)
    missing, infinite = square.clone(), square.clone()
    missing[1, 2], infinite[2, 0] = math.nan, -math.inf
    if any(getattr(part, "needs_relevance", False) for part in loss.modules()):
        for relevance, message in (
            (missing, "relevance is NaN at row 1, column 2"),
            (infinite, "relevance is -inf at row 2, column 0"),
            (None, "needs relevance"),
        ):
            with pytest.raises(ValueError, match=message):
                loss(square, relevance)
    else:
        assert torch.equal(loss(square, missing), loss(square))
    wide = torch.rand(3, 4), torch.rand(3, 4), torch.eye(3, 4) > 0
    with pytest.raises(TypeError, match="relevance is of type ndarray, not a tensor"):
        loss(torch.rand(3, 3), np.ones((3, 3), np.float32))
    with pytest.raises(ValueError, match="not square") if getattr(loss, "paired", True) else nullcontext():
        assert bool(loss(*wide).isfinite())


THRESHOLDS = [losses.LadderLoss((1.0, 0.6)), losses.MultiPositiveInfoNCE(positive=1), losses.KendallLoss(alpha=0)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@over([*FIXED, *THRESHOLDS])
def test_labels_of_equal_captions_are_equal_in_spite_of_rounding(batch: Batch, loss: Any, dtype: torch.dtype) -> None:
    """Check labels that differ by the rounding of float32, in whatever dtype they arrive."""
    relevance, draw = batch.relevance.to(dtype), torch.Generator().manual_seed(0)
    rounded = relevance + 5e-7 * (torch.rand(relevance.shape, generator=draw, dtype=dtype) - 0.5)
    found, expected = (loss(batch.scores, labels, batch.same_image) for labels in (rounded, relevance))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_labels_out_of_the_range_of_a_loss_are_noted_once() -> None:
    scores, labels = torch.rand(3, 3), 10 * torch.eye(3)
    for loss in (losses.BCLSLoss(), losses.SmoothNDCGLoss()):
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("default")
            for batch in (labels, labels + 1, labels / 10):
                loss(scores, batch)
        assert ["-1..1" in str(warning.message) for warning in noted] == [True]


@pytest.mark.gpu
def test_values_on_a_gpu_are_read_in_anomaly_mode_only() -> None:
    scores, relevance = torch.rand(3, 3).cuda(), torch.full((3, 3), torch.nan).cuda()
    losses.KendallLoss()(scores, relevance)
    with torch.autograd.set_detect_anomaly(True), pytest.raises(ValueError, match="relevance is NaN at row 0"):
        losses.KendallLoss()(scores, relevance)


WRONG: list[Any] = [
    (losses.TripletLoss, {"margin": [-0.1, math.nan], "gamma": [0], "negatives": ["all"], "reduction": ["none"]}),
    (losses.KendallLoss, {"directions": ["both"], "alpha": [-1]}),
    (losses.SlidingWindowKendallLoss, {"beta": [0], "high": [-1.0]}),
    (losses.SAMLoss, {"tau": [0], "form": ["code"]}),
    (partial(losses.SAMLoss, form="released"), {"margin_of": ["query"]}),
    (losses.SmoothNDCGLoss, {"tau": [-1]}),
    (losses.SmoothNDCGTripletLoss, {"weight": [1.5]}),
    (losses.SoftTargetLoss, {"tau_target": [0]}),
    (losses.MultiPositiveInfoNCE, {"tau": [0]}),
    (losses.GradedSigmoidLoss, {"scale": [0], "bias": [math.inf], "labels": ["cosines"]}),
    (losses.BCLSLoss, {"weight": [-1]}),
    (losses.LadderLoss, {"thresholds": [(0.5, 0.6)], "margins": [(0.2,)], "weights": [(1.0, -1.0)], "fillers": [True]}),
    (partial(losses.CombinedLoss, {"a": losses.TripletLoss()}), {"weights": [{"b": 1}]}),
]


@pytest.mark.parametrize(("kind", "wrong"), WRONG)
def test_wrong_parameters_are_named(kind: Any, wrong: dict[str, list[Any]]) -> None:
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=name):
                kind(**{name: value})


def test_a_combined_loss_needs_a_part() -> None:
    with pytest.raises(ValueError, match="needs a part"):
        losses.CombinedLoss({})


def labelled(size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    same = torch.eye(size, dtype=torch.bool)
    same[0, 4] = same[4, 0] = True
    return [*(torch.rand(size, size, generator=generator) for _ in range(2)), same]


@pytest.mark.slow
@over(ALL)
def test_compiles_without_graph_breaks(loss: Any) -> None:
    """Check that there is one graph, with the same value and gradient. Of each loss, one variant becomes machine code,
    which takes most of the time.
    """
    torch._dynamo.reset()
    backend = "inductor" if loss is next(one for one in ALL if type(one) is type(loss)) else "aot_eager"
    value, gradient = with_gradient(torch.compile(loss, fullgraph=True, backend=backend), *labelled(12))
    if loss is RANDOM_SAM:
        assert bool(value.isfinite())
    else:
        expected, slope = with_gradient(loss, *labelled(12))
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@over(FIXED)
def test_gpu_agrees(loss: Any) -> None:
    value, gradient = with_gradient(loss, *labelled(64))
    on_gpu, slope = with_gradient(deepcopy(loss).cuda(), *(t.cuda() for t in labelled(64)))
    torch.testing.assert_close(on_gpu.cpu(), value, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.cpu(), gradient, rtol=1e-3, atol=1e-3)
