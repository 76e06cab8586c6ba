"""S-NDCG: one minus NDCG, with smooth ranks from sigmoids of score differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import (
    CombinedLoss,
    Parts,
    Reduction,
    RelevanceLoss,
    check_choice,
    check_number,
    float_labels,
    label_tolerance,
    with_best_own_label,
)
from relabel_train.losses.triplet import TripletLoss

Ideal = Literal["paper", "sorted"]
LabelRange = Literal["cosine", "unit"]
CHUNK = {"cpu": 1 << 17, "cuda": 1 << 24}
"""Differences of scores per block: 0.5 MiB of float32 on a CPU, to fit into its cache, or 64 MiB on a GPU."""


class SmoothNDCGLoss(RelevanceLoss):
    """Mean over queries of 1 - DCG / IDCG with gains 2^r - 1 and smooth ranks (Li et al., arXiv 2305.16566, Eq. 4-16).

    The rank of item j is 1 + sum over k != j of sigmoid((s_k - s_j) / tau), with the sign of Eq. 10 and of the released
    code. Eq. 16 prints the opposite sign, with which the ranking is reversed.

    Parameters
    ----------
    tau : float
        Above 0. 0.01, as the paper.
    labels : "cosine" or "unit"
        "cosine" maps labels in [-1, 1] to (1 + r) / 2 (Eq. 8); "unit" takes labels in [0, 1] unchanged.
    ideal : "paper" or "sorted"
        Ideal DCG. "paper" (Eq. 12-13, and the released code) gives tied labels the best of their ranks, so the loss
        stays above 0 with ties. "sorted" gives them consecutive ranks, so the loss can reach 0.
    reduction, directions : "sum" or "mean"
        "mean" over queries, "sum" over directions, as the paper; the released code averages the directions.

    Notes
    -----
    The paper's text defines the label by one caption of the image; its released code uses the maximum over the image's
    captions, 1 on the diagonal. This class uses r as passed. It must be dense: 0 for a missing entry would claim a
    cosine of 0. With `same_image` all of a query's own items have the best label among them. A query with only zero
    gains has loss 0. Scores need not be square.

    Ranks take time O(B^3). They are computed in blocks, and computed again for the gradient, so memory is O(B^2) and a
    few blocks: 2 MiB on a CPU and about 200 MiB on a GPU. Second derivatives are not available.

    Examples
    --------
    >>> relevance = torch.tensor([[1.0, 0.6, 0.1], [0.6, 1.0, 0.3], [0.1, 0.3, 1.0]])
    >>> loss = SmoothNDCGLoss()
    >>> round(loss(relevance, relevance).item(), 4)  # scores in the order of the labels
    0.0
    >>> round(loss(-relevance, relevance).item(), 4)
    0.2993
    """

    shown: ClassVar[tuple[str, ...]] = ("tau", "labels", "ideal")
    paired: ClassVar[bool] = False

    def __init__(
        self,
        tau: float = 0.01,
        labels: LabelRange = "cosine",
        ideal: Ideal = "paper",
        reduction: Reduction = "mean",
        directions: Reduction = "sum",
    ) -> None:
        super().__init__(reduction, directions)
        check_number("tau", tau, above=0)
        check_choice("labels", labels, ("cosine", "unit"))
        check_choice("ideal", ideal, ("paper", "sorted"))
        self.tau, self.labels, self.ideal = tau, labels, ideal
        self.label_range = (0.0, 1.0) if labels == "unit" else (-1.0, 1.0)

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> Parts:
        """Return 1 - smooth NDCG of each query."""
        values = with_best_own_label(float_labels(relevance), same_image)
        unit = ((1 + values) / 2 if self.labels == "cosine" else values).to(scores.dtype)
        gains = torch.exp2(unit) - 1
        best = self.ideal_dcg(unit, gains, label_tolerance(relevance))
        dcg = (gains / torch.log2(1 + smooth_ranks(scores, self.tau))).sum(dim=1)
        # An IDCG of 0 would give 0 / 0 and a NaN gradient. Masking only the result does not remove the NaN.
        defined = best > 0
        return {"ndcg": (1 - dcg / torch.where(defined, best, 1)).masked_fill(~defined, 0)}

    def ideal_dcg(self, unit: Tensor, gains: Tensor, tolerance: float) -> Tensor:
        """Return IDCG of each query, (Q,), from labels and gains (Q, N); labels within the tolerance are tied."""
        ascending = unit.sort(dim=1).values
        length = unit.shape[1]
        if self.ideal == "sorted":
            ranks = torch.arange(length, 0, -1, dtype=unit.dtype, device=unit.device)
            return ((torch.exp2(ascending) - 1) / torch.log2(1 + ranks)).sum(dim=1)
        # The paper's rank is 1 + the number of strictly larger labels, so tied labels share the best rank.
        larger = length - torch.searchsorted(ascending, unit + tolerance, right=True)
        return (gains / torch.log2(2 + larger.to(unit.dtype))).sum(dim=1)


def smooth_ranks(scores: Tensor, tau: float) -> Tensor:
    """Return 1 + sum over k != j of sigmoid((s_k - s_j) / tau), (Q, N): 1..N; a tie adds 0.5 to each."""
    ranks: Tensor = _SmoothRanks.apply(scores, tau)
    return ranks


class _SmoothRanks(torch.autograd.Function):
    """Smooth ranks that store only the scores; the backward pass recomputes the sigmoids of each block."""

    @staticmethod
    def forward(scores: Tensor, tau: float) -> Tensor:
        scaled, ranks = scores / tau, torch.empty_like(scores)
        for rows, items in _blocks(scaled):
            ranks[rows, items] = _sigmoids(scaled, rows, items).sum(dim=2)
        # The sum over all k includes k = j with sigmoid(0) = 0.5: 1 - 0.5 is left to add.
        return ranks + 0.5

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG004
        scores, ctx.tau = inputs
        ctx.save_for_backward(scores)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (scores,) = ctx.saved_tensors
        scaled, gradient = scores / ctx.tau, torch.empty_like(scores)
        for rows, items in _blocks(scaled):
            # Recomputed: the sigmoids of all pairs would take O(Q N^2) memory.
            sigmoid = _sigmoids(scaled, rows, items)
            # The slope sigmoid (1 - sigmoid) is symmetric in its two items, so one block serves both roles of item j.
            slope = torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1)
            # As k, item j raises the rank of every item; as j, it lowers its rank against every item.
            as_other = (slope * grad[rows, None, :]).sum(dim=2)
            gradient[rows, items] = as_other - slope.sum(dim=2) * grad[rows, items]
        return gradient / ctx.tau, None


def _sigmoids(scaled: Tensor, rows: slice, items: slice) -> Tensor:
    """Return sigmoid(s_k - s_j) for the rows, items j of the block and all items k."""
    return (scaled[rows, None, :] - scaled[rows, items, None]).sigmoid_()


def _blocks(scores: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of rows and items; a block against all items has about CHUNK elements.

    A compiler fuses the sigmoids into their sum and stores none of them, so it gets one block.
    """
    rows, length = scores.shape
    chunk = rows * length**2 if torch.compiler.is_compiling() else CHUNK.get(scores.device.type, CHUNK["cuda"])
    # Many short lists per block, or a part of one long list.
    height, width = max(1, chunk // length**2), min(length, max(1, chunk // length))
    for row in range(0, rows, height):
        for item in range(0, length, width):
            yield slice(row, row + height), slice(item, item + width)


class SmoothNDCGTripletLoss(CombinedLoss):
    """L = L_triplet + L_S-NDCG (Li et al., arXiv 2305.16566, Eq. 22), both means over the batch.

    Parameters
    ----------
    tau, labels, ideal
        Of `SmoothNDCGLoss`; 0.01, "cosine" and "paper".
    margin : float
        Of the hardest-negative `TripletLoss`; 0.2.
    weight : float, optional
        w of (1 - w) triplet + w S-NDCG, 0..1. The released code has this form but defines no value. None, as the paper:
        the plain sum, equal to twice the loss with w = 0.5.
    directions : "sum" or "mean"
        Of both; "sum", as the paper; the released code averages the directions.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.7, 0.3], [0.4, 0.0, 0.6]])
    >>> relevance = torch.tensor([[1.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.0]])
    >>> list(SmoothNDCGTripletLoss().terms(scores, relevance))
    ['triplet.triplet_i2t', 'triplet.triplet_t2i', 'listwise.ndcg_i2t', 'listwise.ndcg_t2i']
    >>> round(SmoothNDCGTripletLoss()(scores, relevance).item(), 4)
    0.1676
    >>> released = SmoothNDCGTripletLoss(weight=0.5, directions="mean")  # a quarter of the sum
    >>> round(released(scores, relevance).item() * 4 / SmoothNDCGTripletLoss()(scores, relevance).item(), 4)
    1.0
    """

    def __init__(
        self,
        tau: float = 0.01,
        margin: float = 0.2,
        labels: LabelRange = "cosine",
        ideal: Ideal = "paper",
        weight: float | None = None,
        directions: Reduction = "sum",
    ) -> None:
        if weight is not None:
            check_number("weight", weight, at_least=0)
            check_number("1 - weight", 1 - weight, at_least=0)
        triplet = TripletLoss(margin, reduction="mean", directions=directions)
        listwise = SmoothNDCGLoss(tau, labels, ideal, directions=directions)
        weights = {} if weight is None else {"triplet": 1 - weight, "listwise": weight}
        super().__init__({"triplet": triplet, "listwise": listwise}, weights)
