"""Log-ratio loss: ratios of embedding distances follow ratios of label distances."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relabel_train.losses.base import Reduction
from relabel_train.losses.distance_base import DistanceLoss
from relabel_train.losses.validation import number


class LogRatioLoss(DistanceLoss):
    """Mean over pairs of { log D(f_a, f_i) / D(f_a, f_j) - log D(y_a, y_i) / D(y_a, y_j) }^2.

    Kim et al., Deep Metric Learning Beyond Binary Supervision, CVPR 2019, Eq. 5; f are embeddings, y labels.

    Parameters
    ----------
    squared : bool
        Whether D of embeddings is the squared Euclidean distance, as in the paper, or the plain one, as in the released
        code. Label distances are used as given; the paper squares them too, the released code does not.
    ties : bool
        Whether pairs of equal label distance count. False, as the paper: D(y_a, y_i) < D(y_a, y_j). The released code
        pairs items by their position in the list, so that ties count.
    eps : float
        0 or more, added to distances inside the logarithms. 1e-6, as the released code; with 0, distances of 0 give an
        infinite loss.
    root_eps : float
        0 or more, added under the root of the plain distance; 1e-12. The released code has 1e-4 / D.
    reduction : "sum" or "mean"
        Over anchors; "mean". Pairs of one anchor are always averaged.

    Notes
    -----
    Embeddings are not normalised. The paper is image to image, with one anchor per batch; no form across modalities is
    published. An anchor without a pair has loss 0. The sum over pairs of (x_i - x_j)^2 is n sum (x - mean)^2, so
    that time is O(A N log N) and memory O(A N) besides the distances, which take O(A N D) time.
    """

    shown: ClassVar[tuple[str, ...]] = ("squared", "ties", "eps", "root_eps")

    def __init__(
        self,
        squared: bool = True,
        ties: bool = False,
        eps: float = 1e-6,
        root_eps: float = 1e-12,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        number("eps", eps, at_least=0)
        number("root_eps", root_eps, at_least=0)
        self.squared, self.ties, self.eps, self.root_eps = squared, ties, eps, root_eps

    def per_anchor(self, apart: Tensor, distances: Tensor, used: Tensor) -> Tensor:
        """Return the mean over each anchor's pairs."""
        # Unused items get a distance of 1, so that their roots and logarithms have finite gradients.
        apart = torch.where(used, apart, 1)
        far = apart if self.squared else (apart + self.root_eps).sqrt()
        logs = torch.log(far + self.eps) - torch.log(torch.where(used, distances, 1) + self.eps)
        total, pairs = spread(logs, used)
        if self.ties:
            return total / pairs.clamp(min=1)
        tied, tied_pairs = spread_within(logs, tie_groups(distances, used), used)
        pairs = pairs - tied_pairs
        return ((total - tied) / pairs.clamp(min=1)).masked_fill(pairs == 0, 0)


def spread(values: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Sum (x_i - x_j)^2 over all pairs i < j of used items; return sums and counts of pairs, both (A,)."""
    weight = used.to(values.dtype)
    count = weight.sum(dim=1, keepdim=True)
    mean = (values * weight).sum(dim=1, keepdim=True) / count.clamp(min=1)
    total = ((values - mean).square() * weight * count).sum(dim=1)
    return total, (count * (count - 1) / 2).squeeze(1)


def spread_within(values: Tensor, groups: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Sum (x_i - x_j)^2 over the pairs i < j of each group; return sums and counts of pairs, both (A,).

    Parameters
    ----------
    values : (A, N) float
    groups : (A, N) int64
        0..N-1; pairs across groups do not count.
    used : (A, N) bool
        Whether an item counts.
    """
    weight = used.to(values.dtype)
    zeros = torch.zeros_like(values)
    count = zeros.scatter_add(1, groups, weight)
    mean = zeros.scatter_add(1, groups, values * weight) / count.clamp(min=1)
    deviation = (values - mean.gather(1, groups)) ** 2 * weight
    total = (zeros.scatter_add(1, groups, deviation) * count).sum(dim=1)
    return total, (count * (count - 1) / 2).sum(dim=1)


def tie_groups(distances: Tensor, used: Tensor) -> Tensor:
    """Number the distinct distances of each anchor, (A, N) int64."""
    ascending, order = distances.masked_fill(~used, torch.inf).sort(dim=1)
    fresh = (ascending[:, 1:] != ascending[:, :-1]).cumsum(dim=1)
    return torch.empty_like(order).scatter_(1, order, torch.nn.functional.pad(fresh, (1, 0)))
