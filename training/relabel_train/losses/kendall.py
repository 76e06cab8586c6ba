"""Kendall loss: pairs of items with clearly different labels must be ranked by label (BCLS Eq. 5 and 17)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import Parts, Reduction, RelevanceLoss, check_number, float_labels, label_tolerance
from relabel_train.losses.pairwise_hinge import hinge_ranked


class KendallLoss(RelevanceLoss):
    """Sum over all items j, k with r_j > r_k + alpha of [s_k - s_j]_+ (Li et al., arXiv 2210.11319, Eq. 17).

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
    Labels: cosines in [-1, 1] in the paper; this class accepts any range. There is no margin, as in Eq. 5, 17 and 19;
    only the gradient analysis of the paper (Eq. 6-9) shows one (docs/deviations.md). The diagonal is a positive by its
    label 1. Without `same_image` labels alone decide; with it, a query's own items are never the lower one of a pair.
    Scores need not be square. Exact value and gradient by sorting: time O(B^2 log B), memory O(B^2); a broadcast takes
    O(B^3) of both.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import KendallLoss
    >>> scores, relevance = torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[1.0, 0.4, 0.3]])
    >>> terms = KendallLoss(alpha=0.2).terms(scores, relevance)
    >>> round(terms["kendall_i2t"].item(), 4)  # item 0 should outscore item 1 and scores 0.4 less
    0.4
    """

    shown: ClassVar[tuple[str, ...]] = ("alpha",)
    paired: ClassVar[bool] = False

    def __init__(self, alpha: float = 0.2, reduction: Reduction = "sum", directions: Reduction = "sum") -> None:
        super().__init__(reduction, directions)
        check_number("alpha", alpha, at_least=0)
        self.alpha = alpha

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> Parts:
        """Return the sum of hinges of each query."""
        above = float_labels(relevance)
        # A label of infinity is above no other, so an own item is never the lower one.
        below = above if same_image is None else above.masked_fill(same_image, torch.inf)
        value, _ = hinge_ranked(scores, above, below, self.alpha + label_tolerance(relevance), 0.0)
        return {"kendall": value}
