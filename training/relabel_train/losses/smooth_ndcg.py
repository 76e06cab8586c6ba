"""S-NDCG: one minus NDCG, with each rank made smooth by sigmoids of score differences."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import Reduction, RelevanceLoss, labels, lifted
from relabel_train.losses.checks import number, one_of

Ideal = Literal["paper", "sorted"]
LabelRange = Literal["cosine", "unit"]
CHUNK = 1 << 22
"""Elements of a (rows, N, N) chunk: 16 MiB of float32."""


class SmoothNDCGLoss(RelevanceLoss):
    """Mean over queries of 1 - DCG / IDCG with gains 2^r - 1 and smooth ranks (Zheng et al., Listwise ITR, Eq. 4-16).

    The rank of item j is 1 + sum over k != j of sigmoid((s_k - s_j) / tau): the sign of Eq. 10 and of the code; Eq. 16
    prints the opposite, which ranks the list upside down (D1).

    Parameters
    ----------
    tau : float
        Above 0. 0.01, as the paper.
    labels : "cosine" or "unit"
        "cosine" maps labels in [-1, 1] to (1 + r) / 2 (Eq. 8); "unit" takes labels in [0, 1] as they are.
    ideal : "paper" or "sorted"
        IDCG. "paper" (Eq. 12-13) gives tied labels the best of their ranks, so that with ties the loss stays above 0;
        "sorted" takes the labels in order, so that it does not (D5).
    reduction : "sum" or "mean"
        Over queries; "mean", as the paper.
    directions : "sum" or "mean"
        "sum", as the paper; the released code takes "mean" (D4).

    Notes
    -----
    The paper's label is the best over an image's captions, 1 on the diagonal (D2); r here is taken as given, dense: an
    entry that is only missing must not be passed as 0. Captions' labels are columns; the code forgets the transpose
    (D3). With `same_image` all of a query's own items have the best label among them. A query whose gains are all 0
    costs nothing. Scores need not be square. Ranks take time O(B^3) in chunks of rows, computed again for the gradient:
    memory O(B^2) plus a chunk of 4 million elements. Second derivatives are not available.
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
        number("tau", tau, above=0)
        one_of("labels", labels, ("cosine", "unit"))
        one_of("ideal", ideal, ("paper", "sorted"))
        self.tau, self.labels, self.ideal = tau, labels, ideal

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> dict[str, Tensor]:
        """Return 1 - smooth NDCG of each query."""
        known = lifted(labels(relevance), same_image)
        unit = ((1 + known) / 2 if self.labels == "cosine" else known).to(scores.dtype)
        gains = torch.exp2(unit) - 1
        best = self.ideal_dcg(unit, gains)
        dcg = (gains / torch.log2(1 + smooth_ranks(scores, self.tau))).sum(dim=1)
        some = best > 0
        return {"ndcg": (1 - dcg / torch.where(some, best, 1)).masked_fill(~some, 0)}

    def ideal_dcg(self, unit: Tensor, gains: Tensor) -> Tensor:
        """Return IDCG of each query, (Q,), from labels and gains (Q, N)."""
        ascending = unit.sort(dim=1).values
        length = unit.shape[1]
        if self.ideal == "sorted":
            places = torch.arange(length, 0, -1, dtype=unit.dtype, device=unit.device)
            return ((torch.exp2(ascending) - 1) / torch.log2(1 + places)).sum(dim=1)
        larger = length - torch.searchsorted(ascending, unit.contiguous(), right=True)
        return (gains / torch.log2(2 + larger.to(unit.dtype))).sum(dim=1)


def smooth_ranks(scores: Tensor, tau: float) -> Tensor:
    """Return 1 + sum over k != j of sigmoid((s_k - s_j) / tau).

    Parameters
    ----------
    scores : (Q, N) float
    tau : float
        Above 0.

    Returns
    -------
    (Q, N) float
        1..N; a tie adds 0.5 to each.
    """
    ranks: Tensor = _SmoothRanks.apply(scores, tau)
    return ranks


class _SmoothRanks(torch.autograd.Function):
    """Keeps the scores alone; the sigmoids of a chunk of rows are computed again in the backward pass."""

    @staticmethod
    def forward(scores: Tensor, tau: float) -> Tensor:
        parts = [torch.sigmoid((rows[:, None, :] - rows[:, :, None]) / tau).sum(dim=2) for rows in _chunks(scores)]
        return torch.cat(parts) + 0.5  # the item itself counts sigmoid(0) = 0.5

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG004
        scores, ctx.tau = inputs
        ctx.save_for_backward(scores)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (scores,) = ctx.saved_tensors
        parts = []
        for rows, part in zip(_chunks(scores), _chunks(grad.contiguous()), strict=True):
            sigmoid = torch.sigmoid((rows[:, None, :] - rows[:, :, None]) / ctx.tau)
            slope = sigmoid * (1 - sigmoid)  # symmetric in its two items
            parts.append((slope @ part[:, :, None])[:, :, 0] - part * slope.sum(dim=2))
        return torch.cat(parts) / ctx.tau, None


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows, max(1, CHUNK // rows.shape[1] ** 2))
