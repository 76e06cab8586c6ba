"""BCLS: the soft-negative triplet loss plus the sliding-window Kendall loss."""

from __future__ import annotations

from relabel_train.losses.base import CombinedLoss, Reduction
from relabel_train.losses.sliding_window_kendall import Edges, SlidingWindowKendallLoss
from relabel_train.losses.triplet import TripletLoss


class BCLSLoss(CombinedLoss):
    """L = L_TSN + L_K-SW-HS (Li et al., arXiv 2210.11319), weighted 1 : 1.

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
    The margin and the edges of windows are not stated in the paper, and no code is published (docs/deviations.md).

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import BCLSLoss
    >>> scores = torch.tensor([[0.8, 0.6, 0.1], [0.3, 0.7, 0.2], [0.2, 0.4, 0.5]])
    >>> relevance = torch.tensor([[1.0, 0.1, 0.6], [0.1, 1.0, 0.4], [0.6, 0.4, 1.0]])
    >>> terms = BCLSLoss().terms(scores, relevance)
    >>> [(name, round(terms[name].item(), 4)) for name in ("triplet.triplet_i2t", "kendall.kendall_i2t")]
    [('triplet.triplet_i2t', 0.1), ('kendall.kendall_i2t', 0.0889)]
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
