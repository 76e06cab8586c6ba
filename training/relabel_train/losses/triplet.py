"""Triplet ranking loss: hardest negative (VSE++), sum of all (VSE0), or a soft maximum (BCLS)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import (
    Parts,
    Reduction,
    RelevanceLoss,
    check_choice,
    check_number,
    float_labels,
    label_tolerance,
)

Negatives = Literal["hardest", "sum", "soft"]


class TripletLoss(RelevanceLoss):
    """Hinge [margin + s(q, n) - s(q, p)]_+ of each query q, its pair p and negatives n.

    Parameters
    ----------
    margin : float
        0 or more. 0.2, as VSE++ and every host of the graded losses; the BCLS paper does not state its margin.
    negatives : "hardest", "sum" or "soft"
        "hardest" uses the most similar negative (VSE++, Faghri et al. 2018), "sum" adds the hinges of all (VSE0),
        "soft" uses (1 / gamma) log sum exp(gamma s) over them, which is at least their maximum (Triplet-SN, BCLS
        Eq. 14-15).
    gamma : float
        Above 0; of "soft". 50, as BCLS.
    below : float
        Of "soft": items with a label below it are negatives. 1, as BCLS, so that exact duplicates are none.
    reduction : "sum" or "mean"
        "sum" as VSE++, SCAN and BCLS; the S-NDCG paper (Eq. 1-3) uses "mean".
    directions : "sum" or "mean"
        "sum" as all papers; the released code of S-NDCG averages the directions.

    Notes
    -----
    "hardest" and "sum" read no labels; for "soft" labels are cosines. Without `same_image` only the diagonal is
    excluded from the negatives, as in all released code; with it, the query's other own items are excluded too. A query
    without a negative has loss 0. Memory and time O(B^2). docs/deviations.md lists where papers and released code
    differ.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import TripletLoss
    >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.7, 0.3], [0.4, 0.0, 0.6]])
    >>> {name: round(part.item(), 4) for name, part in TripletLoss(margin=0.2).terms(scores).items()}
    {'triplet_i2t': 0.1, 'triplet_t2i': 0.3}

    Caption 1 also belongs to image 0, and is no negative:

    >>> same_image = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    >>> round(TripletLoss(margin=0.2)(scores, same_image=same_image).item(), 4)
    0.0

    Triplet-SN of BCLS, with labels:

    >>> relevance = torch.tensor([[1.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.0]])
    >>> round(TripletLoss(negatives="soft")(scores, relevance).item(), 4)
    0.4
    """

    shown: ClassVar[tuple[str, ...]] = ("margin", "negatives", "gamma", "below")

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        gamma: float = 50.0,
        below: float = 1.0,
        reduction: Reduction = "sum",
        directions: Reduction = "sum",
    ) -> None:
        super().__init__(reduction, directions)
        check_number("margin", margin, at_least=0)
        check_choice("negatives", negatives, ("hardest", "sum", "soft"))
        check_number("gamma", gamma, above=0)
        check_number("below", below)
        self.margin, self.negatives, self.gamma, self.below = margin, negatives, gamma, below
        self.needs_relevance = negatives == "soft"

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the hinge of each query."""
        assert same_image is not None  # a paired loss always has the diagonal
        if self.negatives == "sum":
            images, captions = sum_of_hinges(scores, same_image, self.margin)
        elif self.negatives == "hardest":
            images, captions = hardest_hinges(scores, same_image, self.margin)
        else:
            # Exact duplicates have label 1 without being of the image: no negatives either.
            excluded = same_image | (float_labels(relevance) >= self.below - label_tolerance(relevance))
            # Not -inf: logsumexp of a row without a negative would have a NaN gradient; the hinge makes this one 0.
            kept = (self.gamma * scores).masked_fill(excluded, -1e30)
            least = self.margin - scores.diagonal()
            images, captions = ((least + kept.logsumexp(dim) / self.gamma).clamp(min=0) for dim in (1, 0))
        return {"triplet": images}, {"triplet": captions}


def sum_of_hinges(scores: Tensor, same_image: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the sum over all but own items of [margin + s - s(q, p)]_+ for images and for captions, (B,) each."""
    pair = scores.diagonal()
    # The score of an image query's pair is that of its row, of a caption query's pair that of its column.
    images, captions = (
        (margin + scores - of_pair).clamp(min=0).masked_fill(same_image, 0) for of_pair in (pair[:, None], pair)
    )
    return images.sum(dim=1), captions.sum(dim=0)


def hardest_hinges(scores: Tensor, same_image: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return [margin + max over all but own items of s - s(q, p)]_+ for images and for captions, (B,) each.

    0 for a query without other items.
    """
    # A maximum of -inf closes the hinge of a query without negatives, with gradient 0.
    negatives, least = scores.masked_fill(same_image, -torch.inf), margin - scores.diagonal()
    return (least + negatives.amax(dim=1)).clamp(min=0), (least + negatives.amax(dim=0)).clamp(min=0)
