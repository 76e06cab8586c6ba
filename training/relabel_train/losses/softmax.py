"""Losses of the softmax over a query's list: soft targets and InfoNCE with several positives."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import (
    Parts,
    Reduction,
    RelevanceLoss,
    check_number,
    float_labels,
    label_tolerance,
    with_best_own_label,
)


class SoftTargetLoss(RelevanceLoss):
    """KL(softmax(r / tau_target) || softmax(s / tau)) of each query's list (CUSA, Huang et al., AAAI 2024).

    Parameters
    ----------
    tau : float
        Above 0. 0.45, the initial value of CUSA's released configuration (it learns tau). A trainer that scales its
        scores itself, as CLIP does, passes 1.
    tau_target : float
        Above 0. 1, as CUSA.
    reduction, directions : "sum" or "mean"
        "mean", as CUSA and its released code.

    Notes
    -----
    Labels: any range, dense, with the diagonal. With `same_image` all of a query's own items have the best label
    among them. Text to text (CUSA's uni-modal part): pass captions' scores and labels of captions; both directions of a
    symmetric matrix are equal. Scores need not be square.

    Examples
    --------
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
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
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
        # In logarithms, an entry contributes 0 and not NaN if its probability underflows.
        target = torch.log_softmax(relevance / self.tau_target, dim)
        return (target.exp() * (target - torch.log_softmax(scaled, dim))).sum(dim)


class MultiPositiveInfoNCE(RelevanceLoss):
    """Cross-entropy of softmax(s / tau) against a uniform target over a query's positives.

    With one positive per query this is the loss of CLIP (Radford et al., 2021); with more, that of UniCL (Yang et al.,
    CVPR 2022) and, over scores, of SupCon's L_out (Khosla et al., 2020).

    Parameters
    ----------
    tau : float
        Above 0. 0.07, the initial value of CLIP. A trainer that scales its scores itself passes 1.
    positive : float, optional
        Items with a label of this value or more are positives too: 1 adds exact duplicates. None reads no labels.
    reduction, directions : "sum" or "mean"
        "mean", as CLIP.

    Notes
    -----
    Positives are the diagonal, `same_image`, and the items that `positive` adds. `ignore` takes other items out of the
    softmax. Scores need not be square if
    `same_image` is given. A query without a positive has loss 0.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.3, 0.1], [0.4, 0.8, 0.2], [0.2, 0.1, 0.7]])
    >>> round(MultiPositiveInfoNCE(tau=0.1)(scores).item(), 4)
    0.0095
    >>> same_image = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    >>> round(MultiPositiveInfoNCE(tau=0.1)(scores, same_image=same_image).item(), 4)
    1.6762
    """

    shown: ClassVar[tuple[str, ...]] = ("tau", "positive")
    contrasts: ClassVar[bool] = True
    paired: ClassVar[bool] = False

    def __init__(
        self,
        tau: float = 0.07,
        positive: float | None = None,
        reduction: Reduction = "mean",
        directions: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, directions)
        check_number("tau", tau, above=0)
        if positive is not None:
            check_number("positive", positive)
        self.tau, self.positive = tau, positive
        self.needs_relevance = positive is not None

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the cross-entropy of each query."""
        positives, logits = self.positives(scores, relevance, same_image), scores / self.tau
        if ignore is not None:
            # Positives stay in the list. Not -inf: a list that contains only ignored items would have a NaN gradient.
            logits = logits.masked_fill(ignore if positives is None else ignore & ~positives, -1e30)
        images, captions = (cross_entropy_along(logits, positives, dim) for dim in (1, 0))
        return {"infonce": images}, {"infonce": captions}

    def positives(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> Tensor | None:
        """Mark the positives, (B_images, B_captions) bool; None if only the diagonal is positive."""
        if same_image is None and scores.shape[0] != scores.shape[1]:
            raise ValueError(f"scores are {tuple(scores.shape)}: without same_image they must be square")
        if self.positive is None:
            return same_image
        alike = float_labels(relevance) >= self.positive - label_tolerance(relevance)
        # Without `same_image` scores are square and the diagonal holds the pairs.
        return alike.fill_diagonal_(True) if same_image is None else alike | same_image


def cross_entropy_along(logits: Tensor, positives: Tensor | None, dim: int) -> Tensor:
    """Return the cross-entropy of each query's list along `dim` against a uniform target, (Q,)."""
    logs = torch.log_softmax(logits, dim)
    if positives is None:
        return -logs.diagonal()
    # The mean of -log p over the positives; the clamp gives 0 to a query without any.
    return -logs.masked_fill(~positives, 0).sum(dim) / positives.sum(dim).clamp(min=1)
