"""Binary cross-entropy of every pair against its graded label, with a learnable scale and bias."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from relabel_train.losses.base import (
    Parts,
    Reduction,
    RelevanceLoss,
    check_choice,
    check_number,
    float_labels,
    with_best_own_label,
)


class GradedSigmoidLoss(RelevanceLoss):
    """Sum over items j of the binary cross-entropy of sigmoid(t s_j + b) against the label r_j, a mean over queries.

    The loss of SigLIP (Zhai et al., ICCV 2023, arXiv 2303.15343): -(1 / B) sum over i, j of log sigmoid(z_ij (t s_ij +
    b)) with z = 1 for pairs and -1 for all others. This is the cross-entropy with targets 1 and 0. Targets between 0
    and 1 are graded labels, read as probabilities of relevance, as in BiXSE (Tsirigotis et al., arXiv 2508.06781): -(1
    / B) sum over i, j of r_ij log sigmoid(t s_ij + b) + (1 - r_ij) log sigmoid(-t s_ij - b).

    Parameters
    ----------
    scale : float
        Initial t, above 0. 10, as SigLIP. A trainer that scales its scores itself passes scale=1, bias=0 and
        learnable=False.
    bias : float
        Initial b. -10, as SigLIP, in which one target in B is 1 and all others are 0. Dense labels with mean m need a
        bias closer to log(m / (1 - m)).
    learnable : bool
        Learn t' = log t and b with the model, as SigLIP. False keeps them.
    labels : "unit" or "cosine"
        "unit" takes labels in [0, 1] unchanged; "cosine" maps labels in [-1, 1] to (1 + r) / 2.
    reduction, directions : "sum" or "mean"
        "mean", as SigLIP: for square scores both directions sum over the same pairs, so their mean is its one sum. The
        items of a query are always summed.

    Attributes
    ----------
    log_scale, bias : torch.nn.Parameter
        t' and b, () float32. Pass them to the optimizer together with the model's parameters, without weight decay.
        `relabel fit` passes them to its optimizer, clips their gradient with the model's, and stores them in `last.pt`.

    Notes
    -----
    Labels must be dense: 0 for a missing entry would claim irrelevance. With `same_image` all of a query's own items
    have the best label among them. Pairs in `ignore` are left out of the sum. Own items of label 1 without further
    labels are SigLIP's targets. The best score of a pair is (log(r / (1 - r)) - b) / t, so the loss does not reach
    0 for labels between 0 and 1. Scores need not be square.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.3], [0.2, 0.8]])
    >>> round(GradedSigmoidLoss()(scores, torch.eye(2)).item(), 4)  # SigLIP
    1.7207
    >>> loss = GradedSigmoidLoss(bias=0.0)
    >>> round(loss(scores, torch.tensor([[1.0, 0.4], [0.4, 1.0]])).item(), 4)
    1.588
    >>> [name for name, _ in loss.named_parameters()]
    ['log_scale', 'bias']
    """

    shown: ClassVar[tuple[str, ...]] = ("learnable", "labels")
    contrasts: ClassVar[bool] = True
    paired: ClassVar[bool] = False

    def __init__(
        self,
        scale: float = 10.0,
        bias: float = -10.0,
        learnable: bool = True,
        labels: Literal["unit", "cosine"] = "unit",
        reduction: Reduction = "mean",
        directions: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, directions)
        check_number("scale", scale, above=0)
        check_number("bias", bias)
        check_choice("labels", labels, ("unit", "cosine"))
        self.learnable, self.labels = learnable, labels
        self.label_bounds = (0.0, 1.0) if labels == "unit" else (-1.0, 1.0)
        # The logarithm, as SigLIP: t stays above 0, and a step of the optimizer changes it by a factor.
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)), requires_grad=learnable)
        self.bias = nn.Parameter(torch.tensor(float(bias)), requires_grad=learnable)

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the sum over each query's items."""
        logits = self.log_scale.exp() * scores + self.bias
        values = float_labels(relevance).to(scores.dtype)
        unit = (1 + values) / 2 if self.labels == "cosine" else values
        # From logits: the logarithm of a sigmoid that rounds to 0 would be infinite.
        entropies = (
            binary_cross_entropy_with_logits(logits, with_best_own_label(unit, same_image, dim), reduction="none")
            for dim in (1, 0)
        )
        kept = (each if ignore is None else each.masked_fill(ignore, 0) for each in entropies)
        images, captions = (each.sum(dim) for each, dim in zip(kept, (1, 0), strict=True))
        return {"graded_sigmoid": images}, {"graded_sigmoid": captions}

    def extra_repr(self) -> str:
        """Return the parameters, with the current scale and bias."""
        return f"scale={self.log_scale.exp().item():g}, bias={self.bias.item():g}, {super().extra_repr()}"
