"""S-NDCG plus the triplet loss, as the listwise paper trains."""

from __future__ import annotations

from relabel_train.losses.base import Reduction
from relabel_train.losses.combined import CombinedLoss
from relabel_train.losses.smooth_ndcg import Ideal, LabelRange, SmoothNDCGLoss
from relabel_train.losses.triplet import TripletLoss
from relabel_train.losses.validation import number


class SmoothNDCGTripletLoss(CombinedLoss):
    """L = L_triplet + L_S-NDCG (Zheng et al., Listwise ITR, Eq. 22), both means over the batch.

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
            number("weight", weight, at_least=0)
            number("1 - weight", 1 - weight, at_least=0)
        triplet = TripletLoss(margin, reduction="mean", directions=directions)
        listwise = SmoothNDCGLoss(tau, labels, ideal, directions=directions)
        weights = {} if weight is None else {"triplet": 1 - weight, "listwise": weight}
        super().__init__({"triplet": triplet, "listwise": listwise}, weights)
