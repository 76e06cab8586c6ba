"""S-NDCG plus the triplet loss, as the listwise paper trains."""

from __future__ import annotations

from relabel_train.losses.base import CombinedLoss, Reduction, check_number
from relabel_train.losses.smooth_ndcg import Ideal, LabelRange, SmoothNDCGLoss
from relabel_train.losses.triplet import TripletLoss


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
        the plain sum, which is twice w = 0.5.
    directions : "sum" or "mean"
        Of both; "sum", as the paper; the released code averages the directions.

    Raises
    ------
    ValueError
        If a parameter is not in its range.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import SmoothNDCGTripletLoss
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
