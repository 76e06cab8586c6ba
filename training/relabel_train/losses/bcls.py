"""BCLS: the soft-negative triplet loss plus the sliding-window Kendall loss."""

from __future__ import annotations

from relabel_train.losses.base import Reduction
from relabel_train.losses.combined import CombinedLoss
from relabel_train.losses.sliding_window_kendall import Edges, SlidingWindowKendallLoss
from relabel_train.losses.triplet import TripletLoss


class BCLSLoss(CombinedLoss):
    """L = L_TSN + L_K-SW-HS (Zheng et al., arXiv 2210.11319), weighted 1 : 1.

    Parameters
    ----------
    margin, gamma
        Of `TripletLoss` with soft negatives; 0.2 and 50.
    alpha, beta, edges
        Of `SlidingWindowKendallLoss`; 0.2, 0.1 and "upper".
    weight : float
        Of the Kendall part; 0 or more. 1, as the paper.
    reduction : "sum" or "mean"
        "sum", as the paper.

    Notes
    -----
    Labels: cosines in [-1, 1], 1 for a query's own items. Terms: `triplet.*` and `kendall.*`. Memory O(B^2).
    """

    def __init__(
        self,
        margin: float = 0.2,
        gamma: float = 50.0,
        alpha: float = 0.2,
        beta: float = 0.1,
        edges: Edges = "upper",
        weight: float = 1.0,
        reduction: Reduction = "sum",
    ) -> None:
        triplet = TripletLoss(margin, "soft", gamma, reduction=reduction)
        kendall = SlidingWindowKendallLoss(alpha, beta, edges=edges, reduction=reduction)
        super().__init__({"triplet": triplet, "kendall": kendall}, {"kendall": weight})
