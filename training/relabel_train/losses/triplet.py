"""Triplet ranking loss: hardest negative (VSE++), sum of all (VSE0), or a soft maximum (BCLS)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import Parts, Reduction, RelevanceLoss, known_own, labels, slack
from relabel_train.losses.checks import number, one_of

Negatives = Literal["hardest", "sum", "soft"]


class TripletLoss(RelevanceLoss):
    """Hinge [margin + s(q, n) - s(q, p)]_+ of each query q, its pair p and negatives n.

    Parameters
    ----------
    margin : float
        0 or more. 0.2, as VSE++ and every host of the graded losses; BCLS names none (D22).
    negatives : "hardest", "sum" or "soft"
        "hardest" takes the most similar negative (VSE++, Faghri et al. 2018), "sum" adds the hinges of all (VSE0),
        "soft" takes (1 / gamma) log sum exp(gamma s) over them, which is at least their maximum (Triplet-SN, BCLS
        Eq. 14-15).
    gamma : float
        Above 0; of "soft". 50, as BCLS.
    below : float
        Of "soft": an item is a negative if its label is below. 1, as BCLS, so that exact duplicates are none.
    reduction : "sum" or "mean"
        "sum" as VSE++, SCAN and BCLS; the S-NDCG paper (Eq. 1-3) takes "mean".
    directions : "sum" or "mean"
        "sum" as all papers; the released S-NDCG code takes "mean" (D4).

    Notes
    -----
    "hardest" and "sum" need no labels. Without `same_image` only the diagonal is kept from being a negative, as in all
    released code; with it, the query's other own items are as well. A query without a negative costs nothing.
    Memory and time O(B^2). Labels: any range for "hardest" and "sum", which do not read them; for "soft" a cosine.
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
        number("margin", margin, at_least=0)
        one_of("negatives", negatives, ("hardest", "sum", "soft"))
        number("gamma", gamma, above=0)
        number("below", below)
        self.margin, self.negatives, self.gamma, self.below = margin, negatives, gamma, below
        self.needs_relevance = negatives == "soft"

    def both_ways(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> tuple[Parts, Parts]:
        """Return the hinge of each query."""
        own = known_own(same_image)
        if self.negatives == "sum":
            images, captions = sum_of_hinges(scores, own, self.margin)
        elif self.negatives == "hardest":
            images, captions = hardest_hinges(scores, own, self.margin)
        else:
            left_out = own | (labels(relevance) >= self.below - slack(relevance))
            # Not -inf: of a row without a negative, logsumexp then has a gradient, which the hinge makes 0.
            kept = (self.gamma * scores).masked_fill(left_out, -1e30)
            least = self.margin - scores.diagonal()
            images, captions = ((least + kept.logsumexp(dim) / self.gamma).clamp(min=0) for dim in (1, 0))
        return {"triplet": images}, {"triplet": captions}


def sum_of_hinges(scores: Tensor, own: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the sum over all but own items of [margin + s - s(q, p)]_+ for images and for captions, (B,) each."""
    pair = scores.diagonal()
    images, captions = ((margin + scores - held).clamp(min=0).masked_fill(own, 0) for held in (pair[:, None], pair))
    return images.sum(dim=1), captions.sum(dim=0)


def hardest_hinges(scores: Tensor, own: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return [margin + max over all but own items of s - s(q, p)]_+ for images and for captions, (B,) each.

    0 where there is no other item.
    """
    others, least = scores.masked_fill(own, -torch.inf), margin - scores.diagonal()
    return (least + others.amax(dim=1)).clamp(min=0), (least + others.amax(dim=0)).clamp(min=0)
