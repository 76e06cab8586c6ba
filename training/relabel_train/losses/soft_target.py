"""Soft targets: the distribution of scores over a list approaches that of the labels."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import Parts, Reduction, RelevanceLoss, check_number, float_labels, with_best_own_label


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

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import SoftTargetLoss
    >>> relevance = torch.tensor([[1.0, 0.4], [0.4, 1.0]])
    >>> loss = SoftTargetLoss(tau=0.1, tau_target=0.1)
    >>> round(loss(torch.tensor([[0.9, 0.8], [0.2, 0.7]]), relevance).item(), 4)
    0.3986
    >>> abs(round(loss(relevance + 0.3, relevance).item(), 4))  # a constant added to a list changes nothing
    0.0
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
        check_number("tau", tau, above=0)
        check_number("tau_target", tau_target, above=0)
        self.tau, self.tau_target = tau, tau_target

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the divergence of each query."""
        scaled, values = scores / self.tau, float_labels(relevance).to(scores.dtype)
        images, captions = (
            # Own items share the best label along the axis of the list, so the two directions have different targets.
            self._divergence(scaled, with_best_own_label(values, same_image, dim), dim)
            for dim in (1, 0)
        )
        return {"soft_target": images}, {"soft_target": captions}

    def _divergence(self, scaled: Tensor, relevance: Tensor, dim: int) -> Tensor:
        """Return the KL divergence of each list along `dim`, (Q,)."""
        # In logarithms: an entry whose probability underflows contributes 0 and not NaN.
        target = torch.log_softmax(relevance / self.tau_target, dim)
        return (target.exp() * (target - torch.log_softmax(scaled, dim))).sum(dim)
