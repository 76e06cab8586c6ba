"""Kendall loss: items whose labels differ clearly must be ranked as their labels say (BCLS Eq. 5 and 17)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import Parts, Reduction, RelevanceLoss, labels, slack
from relabel_train.losses.checks import number
from relabel_train.losses.pairs import hinge_ranked


class KendallLoss(RelevanceLoss):
    """Sum over all items j, k with r_j > r_k + alpha of [s_k - s_j]_+ (Zheng et al., arXiv 2210.11319, Eq. 17).

    Parameters
    ----------
    alpha : float
        0 or more, in units of the label; a pair must differ by strictly more. 0.2, as the paper; 0 is Eq. 5.
    reduction : "sum" or "mean"
        Over queries; "sum", as the paper. Pairs are always summed.
    directions : "sum" or "mean"
        "sum", as the paper.

    Notes
    -----
    Labels: cosines in [-1, 1] in the paper, any range here. There is no margin: Eq. 5, 17 and 19 have none, the one in
    Eq. 6-9 is left over (D21). The diagonal is a positive like any other, by its label 1; without `same_image` labels
    alone decide. With it, a query's own items are never the lower one of a pair. Scores need not be square.
    Exact value and gradient by sorting: time O(B^2 log B), memory O(B^2), where a broadcast takes O(B^3) of both.
    """

    shown: ClassVar[tuple[str, ...]] = ("alpha",)
    paired: ClassVar[bool] = False

    def __init__(self, alpha: float = 0.2, reduction: Reduction = "sum", directions: Reduction = "sum") -> None:
        super().__init__(reduction, directions)
        number("alpha", alpha, at_least=0)
        self.alpha = alpha

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> Parts:
        """Return the sum of hinges of each query."""
        above = labels(relevance)
        below = above if same_image is None else above.masked_fill(same_image, torch.inf)
        value, _ = hinge_ranked(scores, above, below, self.alpha + slack(relevance), 0.0)
        return {"kendall": value}
