"""Dense triplet loss: every two items ordered by their labels make a triplet with the anchor."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import Reduction
from relabel_train.losses.distance_base import DistanceLoss
from relabel_train.losses.pairwise_hinge import hinge_ranked
from relabel_train.losses.validation import number


class DenseTripletLoss(DistanceLoss):
    """Mean over pairs with D(y_a, y_i) < D(y_a, y_j) of [D(f_a, f_i) - D(f_a, f_j) + margin]_+ (Kim et al., CVPR 2019).

    Parameters
    ----------
    margin : float
        0 or more. 0.03, as the paper, for normalised embeddings.
    normalise : bool
        Whether embeddings are made unit vectors first, which the margin needs. True.
    reduction : "sum" or "mean"
        Over anchors; "mean". Pairs of one anchor are always averaged.

    Notes
    -----
    D of embeddings is the squared Euclidean distance; only the order of label distances counts. An anchor without a
    pair has loss 0. By sorting: time O(A N log N), memory O(A N), besides the distances, which take O(A N D) time.
    """

    shown: ClassVar[tuple[str, ...]] = ("margin", "normalise")

    def __init__(self, margin: float = 0.03, normalise: bool = True, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        number("margin", margin, at_least=0)
        self.margin, self.normalise = margin, normalise

    def prepared(self, embeddings: Tensor) -> Tensor:
        """Return unit vectors."""
        return torch.nn.functional.normalize(embeddings, dim=1) if self.normalise else embeddings

    def per_anchor(self, apart: Tensor, distances: Tensor, used: Tensor) -> Tensor:
        """Return the mean over each anchor's pairs."""
        above = (-distances).masked_fill(~used, -torch.inf)
        below = (-distances).masked_fill(~used, torch.inf)
        total, pairs = hinge_ranked(-apart, above, below, 0.0, self.margin)
        return total / pairs.clamp(min=1)
