"""Soft targets: the distribution of scores over a list approaches that of the labels."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import Parts, Reduction, RelevanceLoss, labels, with_best_own_label
from relabel_train.losses.validation import number


class SoftTargetLoss(RelevanceLoss):
    """KL(softmax(r / tau_target) || softmax(s / tau)) of each query's list (CUSA, Huang et al., AAAI 2024).

    Parameters
    ----------
    tau : float
        Above 0. 0.45, where CUSA's released configuration starts (it learns tau from there). A trainer that scales its
        scores itself, as CLIP does, passes 1.
    tau_target : float
        Above 0. 1, as CUSA.
    reduction : "sum" or "mean"
        Over queries; "mean", as CUSA.
    directions : "sum" or "mean"
        "mean", as CUSA's released code.

    Notes
    -----
    Labels: any range, dense, with the diagonal. With `same_image` all of a query's own items have the best label
    among them. Text to text (CUSA's uni-modal part): pass captions' scores and labels of captions; both directions of a
    symmetric matrix are equal. Scores need not be square. Memory and time O(B^2).
    """

    shown: ClassVar[tuple[str, ...]] = ("tau", "tau_target")
    paired: ClassVar[bool] = False

    def __init__(
        self,
        tau: float = 0.45,
        tau_target: float = 1.0,
        reduction: Reduction = "mean",
        directions: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, directions)
        number("tau", tau, above=0)
        number("tau_target", tau_target, above=0)
        self.tau, self.tau_target = tau, tau_target

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the divergence of each query."""
        scaled, known = scores / self.tau, labels(relevance).to(scores.dtype)
        images, captions = (
            self._divergence(scaled, with_best_own_label(known, same_image, dim), dim) for dim in (1, 0)
        )
        return {"soft_target": images}, {"soft_target": captions}

    def _divergence(self, scaled: Tensor, known: Tensor, dim: int) -> Tensor:
        target = torch.log_softmax(known / self.tau_target, dim)
        return (target.exp() * (target - torch.log_softmax(scaled, dim))).sum(dim)
