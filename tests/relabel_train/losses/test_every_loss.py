"""Contract: every loss of scores has consistent terms, dtypes, devices, compilation, errors, finite edge cases, and
the documented treatment of siblings and directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relabel_train.losses import (
    BCLSLoss,
    CombinedLoss,
    GradedSigmoidLoss,
    KendallLoss,
    LadderLoss,
    MultiPositiveInfoNCE,
    SAMLoss,
    SlidingWindowKendallLoss,
    SmoothNDCGLoss,
    SmoothNDCGTripletLoss,
    SoftTargetLoss,
    TripletLoss,
)

PAIRWISE: dict[str, Callable[[], nn.Module]] = {
    "hardest": TripletLoss,
    "sum": lambda: TripletLoss(negatives="sum"),
    "soft": lambda: TripletLoss(negatives="soft"),
    "kendall": KendallLoss,
    "sw_hs": SlidingWindowKendallLoss,
    "bcls": BCLSLoss,
    "ladder": LadderLoss,
    "ladder3_sum": lambda: LadderLoss((0.63, 0.3), contrast="sum"),
    "ladder_cumulative": lambda: LadderLoss(sets="cumulative"),
    "sam_hard": lambda: SAMLoss(sampling="hard", margin_of="query"),
    "sam_soft": lambda: SAMLoss(sampling="soft", margin_of="query"),
}
LISTWISE: dict[str, Callable[[], nn.Module]] = {
    "smooth_ndcg": SmoothNDCGLoss,
    "smooth_ndcg_sorted": lambda: SmoothNDCGLoss(ideal="sorted"),
    "soft_target": SoftTargetLoss,
    "infonce": MultiPositiveInfoNCE,
    "graded_sigmoid": lambda: GradedSigmoidLoss(labels="cosine"),
}
OTHER: dict[str, Callable[[], nn.Module]] = {
    "smooth_ndcg_triplet": SmoothNDCGTripletLoss,
    "ladder_fillers": lambda: LadderLoss(sets="cumulative", fillers=True),
    "sam_random": SAMLoss,
    "sam_hard_of_image": lambda: SAMLoss(sampling="hard"),
    "sam_released": lambda: SAMLoss(sampling="hard", form="released", clamp=1.0),
    "means": lambda: TripletLoss(reduction="mean", directions="mean"),
}
ALL = PAIRWISE | LISTWISE | OTHER
SYMMETRIC = PAIRWISE | LISTWISE | {n: OTHER[n] for n in ("smooth_ndcg_triplet", "ladder_fillers", "means")}
FIXED = {n: make for n, make in ALL.items() if n != "sam_random"}


def over(losses: dict[str, Callable[[], nn.Module]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make", list(losses.values()), ids=list(losses))


def with_gradient(loss: nn.Module, scores: Tensor, *labels: Tensor | None) -> tuple[Tensor, Tensor]:
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, *labels)
    value.backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


@over(FIXED)
def test_terms_sum_to_the_loss(batch: Any, make: Any) -> None:
    inputs, loss = (batch.scores, batch.relevance, batch.same_image), make()
    terms = loss.terms(*inputs)
    assert all(name.endswith(("_i2t", "_t2i")) for name in terms)
    torch.testing.assert_close(torch.stack(list(terms.values())).sum(), loss(*inputs))


@over(SYMMETRIC)
def test_both_directions_are_the_same_function(batch: Any, make: Any) -> None:
    terms = make().terms(batch.scores, batch.relevance, batch.same_image)
    turned = make().terms(batch.scores.T, batch.relevance.T, batch.same_image.T)
    for name, value in terms.items():
        other = name.replace("_i2t", "_t2i") if name.endswith("_i2t") else name.replace("_t2i", "_i2t")
        torch.testing.assert_close(turned[other], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5])
@over(ALL)
def test_empty_sets_are_finite(make: Any, size: int) -> None:
    """Check no negative, empty levels and windows, all labels equal, one pair, and all scores equal."""
    even = [torch.full((size, size), label) for label in (-1.0, 0.0, 0.63, 0.8, 1.0)]
    everything = torch.ones(size, size, dtype=torch.bool)
    loss = make()
    for relevance in (*even, torch.eye(size), torch.rand(size, size)):
        for same in (None, torch.eye(size).bool(), everything):
            for scores in (torch.zeros(size, size), torch.rand(size, size) * 2 - 1):
                value, gradient = with_gradient(loss, scores, relevance, same)
                assert bool(value.isfinite()), (relevance, same, scores)
                assert bool(gradient.isfinite().all()), (relevance, same, scores)


@over({n: m for n, m in PAIRWISE.items() if n != "ladder_cumulative"})
def test_no_negatives_give_loss_0(make: Any) -> None:
    """Check batches in which all items are a query's own, and a batch of one."""
    for size, same in ((1, None), (4, torch.ones(4, 4, dtype=torch.bool))):
        value, gradient = with_gradient(make(), torch.rand(size, size), torch.ones(size, size), same)
        assert value.item() == 0
        assert bool((gradient == 0).all())


@over(PAIRWISE)
def test_siblings_are_never_negatives(irregular: Any, make: Any) -> None:
    """Check that a higher score of a sibling never costs more, however low its label; without the mask it does."""
    pushed = False
    for seed in range(6):
        batch = irregular(seed)
        scores, relevance = batch.scores.clone(), batch.relevance.clone()
        for i, j in ((2, 5), (5, 2)):
            scores[i, j], relevance[i, j] = 0.95, 0.1
        _, gradient = with_gradient(make(), scores, relevance, batch.same_image)
        assert max(gradient[2, 5].item(), gradient[5, 2].item()) <= 0
        _, gradient = with_gradient(make(), scores, relevance)
        pushed |= max(gradient[2, 5].item(), gradient[5, 2].item()) > 0
    # The furthest negative is never the one of score 0.95.
    assert pushed or (isinstance(make(), SAMLoss) and make().sampling == "soft")


@over(LISTWISE)
def test_siblings_and_pairs_are_interchangeable(batch: Any, make: Any) -> None:
    """Check that the sibling's label is ignored, and that its score may be exchanged with the pair's."""
    other = batch.relevance.clone()
    other[2, 5] = other[5, 2] = -0.9
    inputs = batch.scores, batch.relevance, batch.same_image
    torch.testing.assert_close(make()(batch.scores, other, batch.same_image), make()(*inputs))
    swapped = batch.scores.clone()
    swapped[2, 2], swapped[2, 5] = 0.9, 0.2
    turned = swapped.clone()
    turned[2, 2], turned[2, 5] = 0.2, 0.9
    first, second = (
        {n: v for n, v in make().terms(s, batch.relevance, batch.same_image).items() if n.endswith("i2t")}
        for s in (swapped, turned)
    )
    for name, value in first.items():
        torch.testing.assert_close(value, second[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@over(FIXED)
def test_dtypes(irregular: Any, make: Any, dtype: torch.dtype) -> None:
    """Compare rounded scores and labels with the same numbers in float64, computed in float32."""
    batch, loss = irregular(0), make()
    exact = (batch.relevance * 4).round() / 4
    expected, slope = with_gradient(loss, batch.scores.to(dtype).double(), exact, batch.same_image)
    for label_dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        value, gradient = with_gradient(loss, batch.scores.to(dtype), exact.to(label_dtype), batch.same_image)
        assert value.dtype == torch.float32
        assert gradient.dtype == dtype
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-4)
        if dtype == torch.float32:  # gradients of the other dtypes are rounded to few digits
            torch.testing.assert_close(gradient.double(), slope, rtol=1e-3, atol=1e-3)


@over(FIXED)
def test_autocast_changes_nothing_but_the_product(make: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    images, captions = (nn.functional.normalize(torch.randn(8, 16, generator=generator), dim=1) for _ in range(2))
    relevance = torch.rand(8, 8, generator=generator)
    images.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = images @ captions.T
        value = make()(scores, relevance)
    assert scores.dtype == torch.bfloat16
    torch.testing.assert_close(value, make()(scores.detach().float(), relevance))
    value.backward()
    assert images.grad is not None
    assert bool(images.grad.isfinite().all())


@over(ALL)
def test_mismatched_inputs_are_refused(make: Any) -> None:
    square, loss = torch.rand(3, 3), make()
    for scores, relevance, same, message in (
        (torch.rand(3), square, None, r"scores are \(3,\) float32, not \(images, captions\) floats"),
        (torch.rand(0, 0), square, None, "scores are"),
        (torch.ones(3, 3, dtype=torch.int64), square, None, "int64, not"),
        (square, torch.rand(3, 4), None, r"relevance is \(3, 4\) float32, scores are \(3, 3\) float32"),
        (square, torch.ones(3, 3, dtype=torch.bool), None, "relevance is"),
        (square, square, torch.ones(3, 3), r"same_image is \(3, 3\) float32, not \(3, 3\) bool"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(scores, relevance, same)


@over(ALL)
def test_nan_labels_are_refused(make: Any) -> None:
    """Check that no loss of labels returns a number for a missing one; a loss without labels does not read them."""
    relevance, loss = torch.rand(3, 3), make()
    relevance[1, 2] = torch.nan
    if any(getattr(part, "needs_relevance", False) for part in loss.modules()):
        with pytest.raises(ValueError, match="relevance is NaN at row 1, column 2; leave captions without a label out"):
            loss(torch.rand(3, 3), relevance)
    else:
        assert bool(loss(torch.rand(3, 3), relevance).isfinite())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TripletLoss(-0.1), "margin is -0.1, not 0 or more"),
        (lambda: TripletLoss(float("nan")), "margin is nan, not a finite number"),
        (lambda: TripletLoss(gamma=0), "gamma is 0, not above 0"),
        (lambda: TripletLoss(negatives="all"), "negatives is 'all', not one of 'hardest', 'sum', 'soft'"),  # type: ignore[arg-type]
        (lambda: TripletLoss(reduction="none"), "reduction is 'none', not one of 'sum', 'mean'"),  # type: ignore[arg-type]
        (lambda: KendallLoss(directions="both"), "directions is 'both'"),  # type: ignore[arg-type]
        (lambda: KendallLoss(-1), "alpha is -1"),
        (lambda: SlidingWindowKendallLoss(beta=0), "beta is 0, not above 0"),
        (lambda: SlidingWindowKendallLoss(low=1.0), "high is 1.0, not above 1"),
        (lambda: SAMLoss(0), "tau is 0, not above 0"),
        (lambda: SAMLoss(form="code"), "form is 'code', not one of 'paper', 'released'"),  # type: ignore[arg-type]
        (lambda: SAMLoss(form="released", margin_of="query"), "of form='released', is 'query', not one of 'image'"),
        (lambda: SmoothNDCGLoss(-1), "tau is -1, not above 0"),
        (lambda: SoftTargetLoss(tau_target=0), "tau_target is 0"),
        (lambda: MultiPositiveInfoNCE(0), "tau is 0"),
        (lambda: GradedSigmoidLoss(0), "scale is 0, not above 0"),
        (lambda: GradedSigmoidLoss(bias=float("inf")), "bias is inf, not a finite number"),
        (lambda: GradedSigmoidLoss(labels="cosines"), "labels is 'cosines', not one of 'unit', 'cosine'"),  # type: ignore[arg-type]
        (lambda: CombinedLoss({}), "needs a part"),
        (lambda: CombinedLoss({"a": TripletLoss()}, {"b": 1}), "weights name b; the parts are a"),
        (lambda: BCLSLoss(weight=-1), "weight of kendall is -1, not 0 or more"),
    ],
)
def test_parameters_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
@over(ALL)
def test_compiles_without_graph_breaks(make: Any) -> None:
    """Check that there is one graph, with the same value and gradient."""
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(3)
    scores, relevance = torch.rand(12, 12, generator=generator), torch.rand(12, 12, generator=generator)
    same = torch.eye(12, dtype=torch.bool)
    same[0, 4] = same[4, 0] = True
    loss = make()
    compiled = torch.compile(loss, fullgraph=True)
    value, gradient = with_gradient(compiled, scores, relevance, same)
    if isinstance(loss, SAMLoss) and loss.sampling == "random":
        assert bool(value.isfinite())
        return
    expected, slope = with_gradient(loss, scores, relevance, same)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@over(FIXED)
def test_gpu_agrees(make: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    scores, relevance = torch.rand(64, 64, generator=generator), torch.rand(64, 64, generator=generator)
    same = torch.eye(64, dtype=torch.bool)
    value, gradient = with_gradient(make(), scores, relevance, same)
    on_gpu, slope = with_gradient(make().cuda(), scores.cuda(), relevance.cuda(), same.cuda())
    torch.testing.assert_close(on_gpu.cpu(), value, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.cpu(), gradient, rtol=1e-3, atol=1e-3)
