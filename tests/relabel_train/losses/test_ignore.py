"""Contract: an ignored pair is no negative and no positive: losses with `ignore` equal loops over the other pairs, have
no gradient at ignored pairs, and refuse the mask if they have no negatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.relabel_train.losses.batches import IRREGULAR, Batch, make_smooth, with_gradient

from relabel_train import losses

Pair = Callable[[int, int], float]


def masked(batch: Batch, seed: int = 0, share: float = 0.4) -> torch.Tensor:
    """Return a mask of some pairs, own ones included, which must not count."""
    return torch.rand(batch.scores.shape, generator=torch.Generator().manual_seed(seed)) < share


def lists(batch: Batch, ignore: torch.Tensor) -> list[tuple[list[float], list[int], list[int], list[float]]]:
    """Return scores, own items, negatives and labels of each query: images first, then captions."""
    found = []
    for turn in (lambda m: m, lambda m: m.T):
        scores, relevance, same, left_out = (turn(m) for m in (*batch.all, ignore))
        for q in range(len(scores)):
            own = [j for j in range(len(scores)) if same[q, j] or j == q]
            negatives = [j for j in range(len(scores)) if j not in own and not left_out[q, j]]
            found.append((scores[q].tolist(), own, negatives, relevance[q].tolist()))
    return found


def hinges(batch: Batch, ignore: torch.Tensor, reduce: Callable[[list[float]], float], margin: float = 0.2) -> float:
    """Return the sum over queries of a reduction of [margin + s - pair]_+ over the negatives."""
    total = 0.0
    for n, (scores, _, negatives, _) in enumerate(lists(batch, ignore)):
        pair = scores[n % len(batch.scores)]
        total += reduce([max(0.0, margin + scores[j] - pair) for j in negatives])
    return total


def soft_maximum(batch: Batch, ignore: torch.Tensor) -> float:
    """Return the soft triplet loss; items with label 1 are no negatives."""
    total = 0.0
    for n, (scores, _, negatives, labels) in enumerate(lists(batch, ignore)):
        kept = [scores[j] for j in negatives if labels[j] < 1 - 1e-6]
        if kept:
            most = math.log(sum(math.exp(50 * s) for s in kept)) / 50
            total += max(0.0, 0.2 + most - scores[n % len(batch.scores)])
    return total


def infonce(batch: Batch, ignore: torch.Tensor) -> float:
    """Return the cross-entropy over own items and negatives, a mean over queries and directions."""
    losses_of = []
    for scores, own, negatives, _ in lists(batch, ignore):
        total = math.log(sum(math.exp(scores[j] / 0.07) for j in (*own, *negatives)))
        losses_of.append(sum(total - scores[j] / 0.07 for j in own) / len(own))
    return sum(losses_of) / len(losses_of)


def sigmoid(batch: Batch, ignore: torch.Tensor) -> float:
    """Return the sum over own items and negatives of SigLIP's cross-entropy, a mean over queries and directions."""
    total = 0.0
    for scores, own, negatives, labels in lists(batch, ignore):
        best = max(labels[j] for j in own)
        for j in (*own, *negatives):
            p, r = 1 / (1 + math.exp(-(10 * scores[j] - 10))), (1 + (best if j in own else labels[j])) / 2
            total -= r * math.log(p) + (1 - r) * math.log(1 - p)
    return total / (2 * len(batch.scores))


def adaptive(batch: Batch, ignore: torch.Tensor) -> float:
    """Return SAM's loss of the most similar negative, with the relevance of the query's own direction."""
    total = 0.0
    for n, (scores, _, negatives, labels) in enumerate(lists(batch, ignore)):
        pair = n % len(batch.scores)
        if negatives:
            hardest = max(negatives, key=lambda j: (scores[j], -labels[j]))
            total += max(0.0, (labels[pair] - labels[hardest]) / 3 + scores[hardest] - scores[pair])
    return total


ORACLES: list[tuple[Any, Callable[[Batch, torch.Tensor], float]]] = [
    (losses.TripletLoss(), lambda batch, ignore: hinges(batch, ignore, lambda each: max(each, default=0.0))),
    (losses.TripletLoss(negatives="sum"), lambda batch, ignore: hinges(batch, ignore, math.fsum)),
    (losses.TripletLoss(negatives="soft"), soft_maximum),
    (losses.MultiPositiveInfoNCE(), infonce),
    (losses.GradedSigmoidLoss(labels="cosine"), sigmoid),
    (losses.SAMLoss(sampling="hard", margin_of="query"), adaptive),
]
CONTRASTING = [loss for loss, _ in ORACLES] + [losses.LadderLoss(), losses.BCLSLoss(), losses.SAMLoss()]


@pytest.mark.parametrize(("loss", "oracle"), ORACLES)
def test_losses_equal_loops_over_the_other_pairs(loss: Any, oracle: Callable[[Batch, torch.Tensor], float]) -> None:
    for batch in IRREGULAR:
        exact = Batch(batch.scores.double(), batch.relevance.double(), batch.same_image)
        for share in (0.0, 0.4, 1.0):
            ignore = masked(batch, share=share)
            assert loss(*exact.all, ignore).item() == pytest.approx(oracle(exact, ignore), abs=1e-6)


@pytest.mark.parametrize("loss", CONTRASTING)
def test_ignored_pairs_have_no_gradient(loss: Any) -> None:
    parts = loss.parts.values() if isinstance(loss, losses.CombinedLoss) else [loss]
    batch, ignore = IRREGULAR[0], masked(IRREGULAR[0])
    other = ignore & ~batch.same_image & ~torch.eye(len(ignore), dtype=torch.bool)
    for part in (part for part in parts if part.contrasts):
        names = [name for name in part.terms(*batch.all, ignore) if "level2" not in name]
        first = _Terms(part, names)
        _, gradient = with_gradient(first, *batch.all, ignore)
        assert not gradient[other].any()
        assert with_gradient(first, *batch.all)[1][other].any() or getattr(part, "sampling", "") == "random"


class _Terms(torch.nn.Module):
    """Sum of some terms of a loss."""

    def __init__(self, loss: Any, names: list[str]) -> None:
        super().__init__()
        self.loss, self.names = loss, names

    def forward(self, *inputs: Any) -> torch.Tensor:
        terms = self.loss.terms(*inputs)
        return sum((terms[name] for name in self.names), start=torch.zeros(()))


@pytest.mark.parametrize("loss", [one for one in CONTRASTING if getattr(one, "sampling", "") != "random"])
def test_gradient_with_a_mask(loss: Any) -> None:
    scores, relevance = make_smooth(1, 6, 6)
    ignore = torch.rand(6, 6, generator=torch.Generator().manual_seed(2)) < 0.4
    assert torch.autograd.gradcheck(loss, (scores.requires_grad_(), relevance, torch.eye(6) > 0, ignore))


@pytest.mark.parametrize("loss", CONTRASTING)
def test_a_batch_of_ignored_pairs_is_finite_also_under_autocast(loss: Any) -> None:
    scores, relevance, every = torch.rand(4, 4), torch.rand(4, 4), torch.ones(4, 4, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        value, gradient = with_gradient(loss, scores, relevance, None, every)
    assert bool(value.isfinite() & gradient.isfinite().all())
    assert value.dtype == torch.float32


def test_upper_levels_of_a_ladder_ignore_nothing() -> None:
    batch, ignore = IRREGULAR[0], masked(IRREGULAR[0])
    before, after = losses.LadderLoss().terms(*batch.all), losses.LadderLoss().terms(*batch.all, ignore)
    assert all(torch.equal(before[name], after[name]) for name in before if "level2" in name)


def test_wrong_masks_and_losses_without_negatives_are_named() -> None:
    square, mask = torch.rand(3, 3), torch.eye(3) > 1
    with pytest.raises(ValueError, match=r"ignore is \(3, 3\) float32"):
        losses.TripletLoss()(square, ignore=square)
    for loss in (losses.KendallLoss(), losses.SmoothNDCGLoss(), losses.CombinedLoss({"a": losses.SoftTargetLoss()})):
        with pytest.raises(ValueError, match="has no negatives to ignore"):
            loss(square, square, ignore=mask)
    with pytest.raises(ValueError, match="reads no masks"):
        losses.SAMLoss(form="released")(square, square, ignore=mask)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [losses.TripletLoss(), losses.MultiPositiveInfoNCE(), losses.GradedSigmoidLoss()])
def test_a_mask_compiles_without_graph_breaks(loss: Any) -> None:
    batch, ignore = IRREGULAR[0], masked(IRREGULAR[0])
    relevance = batch.relevance.clamp(0, 1)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(batch.scores, relevance, batch.same_image, ignore),
        loss(batch.scores, relevance, batch.same_image, ignore),
    )
