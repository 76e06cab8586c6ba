"""Dense triplet loss: every two items ordered by their labels make a triplet with the anchor."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import Reduction, check_number
from relabel_train.losses.distance_base import DistanceLoss
from relabel_train.losses.pairwise_hinge import hinge_ranked


class DenseTripletLoss(DistanceLoss):
    """Mean over pairs with D(y_a, y_i) < D(y_a, y_j) of [D(f_a, f_i) - D(f_a, f_j) + margin]_+ (Kim et al., CVPR 2019).

    Parameters
    ----------
    margin : float
        0 or more. 0.03, as the paper, for normalised embeddings.
    normalise : bool
        Divide embeddings by their lengths first, which the margin needs. True.
    reduction : "sum" or "mean"
        Over anchors; "mean". Pairs of one anchor are always averaged.

    Notes
    -----
    D of embeddings is the squared Euclidean distance; only the order of label distances counts. An anchor without a
    pair has loss 0. By sorting: time O(A N log N), memory O(A N), besides the distances, which take O(A N D) time.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import DenseTripletLoss
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> distances = torch.tensor([[0.0, 0.2, 0.7]])  # of one anchor, the first item, to all three
    >>> round(DenseTripletLoss()(embeddings, distances).item(), 4)  # 0.8 - 0.4 + 0.03
    0.43
    """

    shown: ClassVar[tuple[str, ...]] = ("margin", "normalise")

    def __init__(self, margin: float = 0.03, normalise: bool = True, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_number("margin", margin, at_least=0)
        self.margin, self.normalise = margin, normalise

    def prepare(self, embeddings: Tensor) -> Tensor:
        """Return unit vectors."""
        return torch.nn.functional.normalize(embeddings, dim=1) if self.normalise else embeddings

    def per_anchor(self, apart: Tensor, distances: Tensor, used: Tensor) -> Tensor:
        """Return the mean over each anchor's pairs."""
        # Negated distances make a ranking: nearer items score higher, smaller label distances are more relevant.
        # An unused item is never the upper one (-inf) and never the lower one (inf) of a pair.
        above = (-distances).masked_fill(~used, -torch.inf)
        below = (-distances).masked_fill(~used, torch.inf)
        total, pairs = hinge_ranked(-apart, above, below, 0.0, self.margin)
        return total / pairs.clamp(min=1)
