"""Losses of BCLS (Li et al., arXiv 2210.11319): Kendall, sliding-window Kendall, and their sum with a triplet loss.

Pairs of items with clearly different labels must be ranked by label (Eq. 5 and 17).
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import (
    CombinedLoss,
    Parts,
    Reduction,
    RelevanceLoss,
    check_choice,
    check_number,
    float_labels,
    label_tolerance,
)
from relabel_train.losses.pairwise_hinge import hinge_between, hinge_ranked
from relabel_train.losses.triplet import TripletLoss


class KendallLoss(RelevanceLoss):
    """Sum over all items j, k with r_j > r_k + alpha of [s_k - s_j]_+ (Li et al., arXiv 2210.11319, Eq. 17).

    Parameters
    ----------
    alpha : float
        0 or more, in units of the label; a pair must differ by strictly more. 0.2, as the paper; 0 is Eq. 5.
    reduction, directions : "sum" or "mean"
        "sum", as the paper. Pairs are always summed.

    Notes
    -----
    Labels: cosines in [-1, 1] in the paper; this class accepts any range. The loss does not have a margin, as in Eq. 5,
    17 and 19; only the gradient analysis of the paper (Eq. 6-9) shows one. The diagonal is a positive by its label 1.
    With `same_image` a query's own items are never the lower one of a pair. Scores need not be square. Exact value and
    gradient by sorting: time O(B^2 log B); a broadcast takes O(B^3) time and memory.

    Examples
    --------
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


Edges = Literal["upper", "lower", "all"]
Pairs = Literal["hardest", "all"]


class SlidingWindowKendallLoss(RelevanceLoss):
    """Windows of width alpha slide by beta over the labels; items above a window must outscore items below it.

    In each window the least similar item above and the most similar item below are taken, and [s_below - s_above]_+ is
    summed over windows and divided by their number M (Li et al., arXiv 2210.11319, Eq. 19-20).

    Parameters
    ----------
    alpha : float
        Width, greater than 0, in units of the label. 0.2, as the paper.
    beta : float
        Stride, above 0. 0.1, as the paper.
    low, high : float
        Range of the labels. -1 and 1, of a cosine.
    edges : "upper", "lower" or "all"
        Windows in use. The paper states their number M, but M + 1 fit, and it does not state their edges. "upper" drops
        the lowest window because nothing is below it. Its last window is [0.8, 1]: an item of label 1 is compared with
        all items below 0.8, as in Eq. 17. "lower" drops the highest. "all" keeps both and still divides by M, so its
        value is that of "upper".
    pairs : "hardest" or "all"
        Pairs of a window. "hardest" is SW-HS (Eq. 19-20), the loss above. "all" adds the hinges of every item above
        with every item below, and does not divide by the number of windows (Eq. 18).
    reduction, directions : "sum" or "mean"
        "sum", as the paper. Neither changes how windows are combined.

    Attributes
    ----------
    windows : int
        M = (high - low - alpha) / beta, rounded to the nearest integer: 18 by default. A half is rounded up.

    Notes
    -----
    An item is above a window if its label is greater than or equal to the upper edge, and below if its label is less
    than the lower edge. A window with an empty side has loss 0 and still counts in M. Edges are computed from the
    window's integer index; labels meet an edge within the tolerance of their dtype. If M was rounded up, M strides do
    not fit, and the windows of "upper" and "all" are shifted down by the excess, at most half a stride, to end at
    `high`. With `same_image` a query's own items are never below a window. Scores need not be square. Time O(B^2 log
    B), memory O(B^2 + B M); time O(M B^2 log B) for all pairs.

    Examples
    --------
    >>> loss = SlidingWindowKendallLoss(alpha=0.2, beta=0.1)
    >>> loss.windows
    18
    >>> loss.lower_edges(torch.zeros(1))[-2:]
    tensor([0.7000, 0.8000])
    >>> scores, relevance = torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[1.0, 0.4, 0.3]])
    >>> round(loss.terms(scores, relevance)["kendall_i2t"].item(), 4)  # 0.4 in 4 windows, from [0.5, 0.7] on, of 18
    0.0889
    """

    shown: ClassVar[tuple[str, ...]] = ("alpha", "beta", "low", "high", "edges", "pairs")
    paired: ClassVar[bool] = False

    def __init__(
        self,
        alpha: float = 0.2,
        beta: float = 0.1,
        low: float = -1.0,
        high: float = 1.0,
        edges: Edges = "upper",
        pairs: Pairs = "hardest",
        reduction: Reduction = "sum",
        directions: Reduction = "sum",
    ) -> None:
        super().__init__(reduction, directions)
        check_number("alpha", alpha, above=0)
        check_number("beta", beta, above=0)
        check_number("low", low)
        check_number("high", high, above=low)
        check_choice("edges", edges, ("upper", "lower", "all"))
        check_choice("pairs", pairs, ("hardest", "all"))
        self.alpha, self.beta, self.low, self.high, self.edges, self.pairs = alpha, beta, low, high, edges, pairs
        self.label_range = (low, high)
        # Not `round`, because it rounds halves to even; 1e-6, since the quotient of a half may be slightly below it.
        self.windows = math.floor((high - low - alpha) / beta + 0.5 + 1e-6)
        if self.windows < 1:
            raise ValueError(f"no window of width {alpha} and stride {beta} fits into {low}..{high}")

    def lower_edges(self, like: Tensor) -> Tensor:
        """Return the lower edges in ascending order, (M,) or (M + 1,), in the dtype and on the device of `like`."""
        first = 1 if self.edges == "upper" else 0
        last = self.windows - 1 if self.edges == "lower" else self.windows
        # The last window must not end above `high`, outside the range of labels.
        excess = max(0.0, self.alpha + self.beta * last - (self.high - self.low))
        # From the integer index: adding beta repeatedly would accumulate rounding and move labels across an edge.
        return self.low - excess + self.beta * torch.arange(first, last + 1, dtype=like.dtype, device=like.device)

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> Parts:
        """Return the mean over windows of each query's hinge, or the sum of all hinges of all windows."""
        if self.pairs == "all":
            values, tolerance = float_labels(relevance), label_tolerance(relevance)
            lower = values if same_image is None else values.masked_fill(same_image, torch.inf)
            # A loop over windows: a pair counts once in every window that separates it.
            sums = [
                hinge_between(scores, values >= low + self.alpha - tolerance, lower < low - tolerance, 0.0)
                for low in self.lower_edges(values)
            ]
            return {"kendall": torch.stack(sums).sum(dim=0)}
        above, below, both = self.hardest_pairs(scores, relevance, same_image)
        # The choice of pairs has no gradient; the two scores of each pair have one.
        hinges = (scores.gather(1, below) - scores.gather(1, above)).clamp(min=0)
        return {"kendall": hinges.masked_fill(~both, 0).sum(dim=1) / self.windows}

    @torch.no_grad()
    def hardest_pairs(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the least similar item above, and the most similar item below, each window of each query.

        Returns
        -------
        above, below : (Q, windows) int64
            Columns; arbitrary if a side is empty.
        both : (Q, windows) bool
            True if both sides have an item.
        """
        values, tolerance = float_labels(relevance), label_tolerance(relevance)
        queries, length = values.shape
        lows = self.lower_edges(values)
        ascending, order = values.sort(dim=1)
        # Items above a window are a suffix of the labels in order, items below a prefix.
        suffix = torch.searchsorted(ascending, (lows + self.alpha - tolerance).expand(queries, -1).contiguous())
        # Running minima from the right answer every suffix, for all windows, in one pass.
        least = scores.gather(1, order).flip(1).cummin(dim=1).indices
        above = order.flip(1).gather(1, least.gather(1, (length - 1 - suffix).clamp(min=0)))
        if same_image is not None:
            # A label of infinity is below no window.
            ascending, order = values.masked_fill(same_image, torch.inf).sort(dim=1)
        prefix = torch.searchsorted(ascending, (lows - tolerance).expand(queries, -1).contiguous())
        # Running maxima from the left answer every prefix.
        most = scores.gather(1, order).cummax(dim=1).indices
        below = order.gather(1, most.gather(1, (prefix - 1).clamp(min=0)))
        return above, below, (suffix < length) & (prefix > 0)


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
    Labels: cosines in [-1, 1], 1 for a query's own items. The paper's code is not published.

    Examples
    --------
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
