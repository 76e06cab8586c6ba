"""Losses of embeddings and label distances (Kim et al., CVPR 2019): their base class, log-ratio and dense triplet loss.

A loss has one call, anchors first.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from relabel_train.losses.base import Reduction, check_choice, check_labels, check_number, describe, label_tolerance
from relabel_train.losses.pairwise_hinge import hinge_ranked


class DistanceLoss(nn.Module):
    """Base class of losses of embeddings, given label distances: `loss(embeddings, distances, same_image)`.

    The first A embeddings are the anchors: A = 1 is the papers' batch, A = N takes every item as an anchor. An anchor
    without a pair has loss 0. Distances take time O(A N D), the rest O(A N log N) by sorting; memory is O(A N).

    Parameters
    ----------
    reduction : "sum" or "mean"
        Over anchors.

    Examples
    --------
    >>> class MeanDistance(DistanceLoss):
    ...     def per_anchor(self, apart, distances, used):
    ...         return (apart * used).sum(dim=1) / used.sum(dim=1)
    >>> MeanDistance()(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.5], [0.5, 0.0]])).item()
    25.0
    """

    shown: ClassVar[tuple[str, ...]] = ()

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, ("sum", "mean"))
        self.reduction = reduction

    def forward(self, embeddings: Tensor, distances: Tensor, same_image: Tensor | None = None) -> Tensor:
        """Return the loss.

        Parameters
        ----------
        embeddings : (N, D) float
            Of one kind of item, images in the paper.
        distances : (A, N) float
            Label distances of the first A items to all, 0 or more; smaller is more relevant. Of a relevance with upper
            bound 1: 1 - r.
        same_image : (A, N) bool, optional
            True if item j is of the anchor's own image. Such items are left out, as the anchor itself always is.

        Returns
        -------
        () float
            float32, or float64 for float64 embeddings.

        Raises
        ------
        ValueError
            If shapes or dtypes do not fit. If values are checked (`RelevanceLoss`), also if a distance is negative,
            infinite or NaN. Distances below 0 by rounding count as 0.
        """
        self._check(embeddings, distances, same_image)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
            distances = distances.detach().to(torch.promote_types(distances.dtype, torch.float32)).clamp(min=0)
            anchors, items = distances.shape
            used = ~torch.eye(anchors, items, dtype=torch.bool, device=embeddings.device)
            if same_image is not None:
                used = used & ~same_image
            apart = squared_distances(self.prepare(embeddings), anchors)
            losses = self.per_anchor(apart, distances.to(apart.dtype), used)
        return losses.sum() if self.reduction == "sum" else losses.mean()

    def terms(self, embeddings: Tensor, distances: Tensor, same_image: Tensor | None = None) -> dict[str, Tensor]:
        """Return the loss under its name, as the one part."""
        return {type(self).__name__: self.forward(embeddings, distances, same_image)}

    def prepare(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings for which distances are compared."""
        return embeddings

    def per_anchor(self, apart: Tensor, distances: Tensor, used: Tensor) -> Tensor:
        """Return the loss of each anchor, (A,); implemented by subclasses.

        Parameters
        ----------
        apart, distances : (A, N) float
            Squared Euclidean distances of embeddings, and label distances.
        used : (A, N) bool
            Items that count.
        """
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the parameters."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in (*self.shown, "reduction"))

    def _check(self, embeddings: Tensor, distances: Tensor, same_image: Tensor | None) -> None:
        name = type(self).__name__
        if embeddings.ndim != 2 or 0 in embeddings.shape or not embeddings.is_floating_point():
            raise ValueError(f"{name}: embeddings are {describe(embeddings)}, not (items, width) floats")
        fits = distances.ndim == 2 and 1 <= distances.shape[0] <= distances.shape[1] == len(embeddings)
        if not fits or not distances.is_floating_point():
            raise ValueError(f"{name}: distances are {describe(distances)}, not (anchors, {len(embeddings)}) floats")
        if same_image is not None and (same_image.shape != distances.shape or same_image.dtype != torch.bool):
            raise ValueError(f"{name}: same_image is {describe(same_image)}, not {tuple(distances.shape)} bool")
        check_labels(f"{name}: the distance", distances, (0, math.inf))


def squared_distances(embeddings: Tensor, anchors: int) -> Tensor:
    """Return the squared Euclidean distances of the first A embeddings to all N.

    The value is exact, from differences: |a|^2 + |b|^2 - 2ab loses the distance of near duplicates to rounding. The
    gradient needs only the sums of g_ij (x_i - x_j), that is, two matrix products. The gradient of `torch.cdist` holds
    all A N D differences on a GPU: 4 GiB for 1,024 items of width 1,024.
    """
    if anchors == 1:  # the differences take no more memory than the embeddings
        return (embeddings[:1] - embeddings).square().sum(dim=1)[None]
    apart: Tensor = _SquaredDistances.apply(embeddings, anchors)
    return apart


class _SquaredDistances(torch.autograd.Function):
    """Squared distances computed from differences, with a gradient computed by matrix products."""

    @staticmethod
    def forward(embeddings: Tensor, anchors: int) -> Tensor:
        exact = "donot_use_mm_for_euclid_dist"
        return torch.cdist(embeddings[:anchors], embeddings, compute_mode=exact) ** 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:  # noqa: ARG004
        embeddings, ctx.anchors = inputs
        ctx.save_for_backward(embeddings)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (embeddings,) = ctx.saved_tensors
        # For near duplicates, x_i sum(g) and the sum of g x_j nearly cancel, and the slope g of a loss of logarithms is
        # large. In float64, with vectors without a common offset, the difference has the precision of float32.
        items, slope = embeddings.double(), grad.double()
        items = items - items.mean(dim=0)
        anchors = items[: ctx.anchors]
        of_items = items * slope.sum(dim=0)[:, None] - slope.T @ anchors
        of_anchors = anchors * slope.sum(dim=1)[:, None] - slope @ items
        rest = of_items[ctx.anchors :]
        return (2 * torch.cat([of_items[: ctx.anchors] + of_anchors, rest])).to(embeddings.dtype), None


class LogRatioLoss(DistanceLoss):
    """Mean over pairs of { log D(f_a, f_i) / D(f_a, f_j) - log D(y_a, y_i) / D(y_a, y_j) }^2.

    Kim et al., Deep Metric Learning Beyond Binary Supervision, CVPR 2019, Eq. 5; f are embeddings, y labels.

    Parameters
    ----------
    squared : bool
        True: D of embeddings is the squared Euclidean distance, as in the paper. False: the plain distance, as in the
        released code. Label distances are used as given; the paper squares them too, the released code does not.
    ties : bool
        True: pairs of equal label distance count, as in the released code (it pairs items by their position in the
        list). False, as the paper: only pairs with D(y_a, y_i) < D(y_a, y_j).
    eps : float
        0 or more, added to distances inside the logarithms. 1e-6, as the released code; with 0, distances of 0 give an
        infinite loss.
    root_eps : float
        0 or more, added under the root of the plain distance; 1e-12. The released code has 1e-4 / D.
    reduction : "sum" or "mean"
        "mean". Pairs of one anchor are always averaged.

    Notes
    -----
    Embeddings are not normalised. The paper is image to image, with one anchor per batch; no form across modalities is
    published.

    Examples
    --------
    >>> embeddings = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> LogRatioLoss(eps=0)(embeddings, torch.tensor([[0.0, 0.2, 0.8]])).item()  # 1 : 4, and 0.2 : 0.8
    0.0
    >>> round(LogRatioLoss(eps=0)(embeddings, torch.tensor([[0.0, 0.4, 0.8]])).item(), 4)  # (log 2)^2
    0.4805
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
        check_number("eps", eps, at_least=0)
        check_number("root_eps", root_eps, at_least=0)
        self.squared, self.ties, self.eps, self.root_eps = squared, ties, eps, root_eps

    def per_anchor(self, apart: Tensor, distances: Tensor, used: Tensor) -> Tensor:
        """Return the mean over each anchor's pairs."""
        # Unused items get a distance of 1 because its root and logarithm have finite gradients.
        apart = torch.where(used, apart, 1)
        far = apart if self.squared else (apart + self.root_eps).sqrt()
        # Per item x_i = log D(f_a, f_i) - log D(y_a, y_i): the loss of a pair is (x_i - x_j)^2.
        logs = torch.log(far + self.eps) - torch.log(torch.where(used, distances, 1) + self.eps)
        total, pairs = sum_pairs(logs, used)
        if self.ties:
            return total / pairs.clamp(min=1)
        # Pairs with a strict order are all pairs less those within groups of equal label distance.
        tied, tied_pairs = sum_pairs_within(logs, tie_groups(distances, used), used)
        pairs = pairs - tied_pairs
        # The difference of two equal sums is 0 only up to rounding.
        return ((total - tied) / pairs.clamp(min=1)).masked_fill(pairs == 0, 0)


def sum_pairs(values: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Sum (x_i - x_j)^2 over all pairs i < j of used items; return sums and counts of pairs, both (A,)."""
    weight = used.to(values.dtype)
    count = weight.sum(dim=1, keepdim=True)
    mean = (values * weight).sum(dim=1, keepdim=True) / count.clamp(min=1)
    # The sum over pairs of (x_i - x_j)^2 is n times the sum of (x - mean)^2, so no axis of pairs is needed.
    total = ((values - mean).square() * weight * count).sum(dim=1)
    return total, (count * (count - 1) / 2).squeeze(1)


def sum_pairs_within(values: Tensor, groups: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Sum (x_i - x_j)^2 over the pairs i < j of each group, 0..N-1; return sums and counts of pairs, both (A,)."""
    weight = used.to(values.dtype)
    zeros = torch.zeros_like(values)
    # Column g of a row is group g: at most N groups, so (A, N) holds them all.
    count = zeros.scatter_add(1, groups, weight)
    mean = zeros.scatter_add(1, groups, values * weight) / count.clamp(min=1)
    deviation = (values - mean.gather(1, groups)) ** 2 * weight
    total = (zeros.scatter_add(1, groups, deviation) * count).sum(dim=1)
    return total, (count * (count - 1) / 2).sum(dim=1)


def tie_groups(distances: Tensor, used: Tensor) -> Tensor:
    """Number the distances of each anchor that differ by more than rounding, (A, N) int64."""
    ascending, order = distances.masked_fill(~used, torch.inf).sort(dim=1)
    # In ascending order a new group starts where a distance differs from the one before it.
    numbers = (ascending[:, 1:] - ascending[:, :-1] > label_tolerance(distances)).cumsum(dim=1)
    return torch.empty_like(order).scatter_(1, order, torch.nn.functional.pad(numbers, (1, 0)))


class DenseTripletLoss(DistanceLoss):
    """Mean over pairs with D(y_a, y_i) < D(y_a, y_j) of [D(f_a, f_i) - D(f_a, f_j) + margin]_+ (Kim et al., CVPR 2019).

    Parameters
    ----------
    margin : float
        0 or more. 0.03, as the paper, for normalised embeddings.
    normalise : bool
        Divide embeddings by their lengths first, as the margin requires. True.
    positives : int, optional
        Binary labels: the positives of an anchor are this many items with the smallest label distances and all items
        tied with the last of them. All others are negatives. 5 with margin 0.2 is the binary triplet loss of the paper.
    reduction : "sum" or "mean"
        "mean". Pairs of one anchor are always averaged.

    Notes
    -----
    D of embeddings is the squared Euclidean distance; only the order of label distances counts.

    Examples
    --------
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> distances = torch.tensor([[0.0, 0.2, 0.7]])  # of one anchor, the first item, to all three
    >>> round(DenseTripletLoss()(embeddings, distances).item(), 4)  # 0.8 - 0.4 + 0.03
    0.43
    """

    shown: ClassVar[tuple[str, ...]] = ("margin", "normalise", "positives")

    def __init__(
        self, margin: float = 0.03, normalise: bool = True, positives: int | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        check_number("margin", margin, at_least=0)
        check_number("positives", 1 if positives is None else positives, at_least=1)
        self.margin, self.normalise, self.positives = margin, normalise, positives

    def prepare(self, embeddings: Tensor) -> Tensor:
        """Return unit vectors."""
        return torch.nn.functional.normalize(embeddings, dim=1) if self.normalise else embeddings

    def per_anchor(self, apart: Tensor, distances: Tensor, used: Tensor) -> Tensor:
        """Return the mean over each anchor's pairs."""
        if self.positives is not None:
            nearest = distances.masked_fill(~used, torch.inf).sort(dim=1).values[:, : self.positives]
            distances = (distances > nearest[:, -1:] + label_tolerance(distances)).to(distances.dtype)
        # Negated distances make a ranking: nearer items score higher, smaller label distances are more relevant.
        # An unused item is never the upper one (-inf) and never the lower one (inf) of a pair.
        above = (-distances).masked_fill(~used, -torch.inf)
        below = (-distances).masked_fill(~used, torch.inf)
        total, pairs = hinge_ranked(-apart, above, below, label_tolerance(distances), self.margin)
        return total / pairs.clamp(min=1)
