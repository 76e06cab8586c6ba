"""Ladder loss: items of each level of relevance must outscore all items of the levels below."""

from __future__ import annotations

from collections.abc import Sequence
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
from relabel_train.losses.pairwise_hinge import hinge_between
from relabel_train.losses.triplet import hardest_hinges, no_negatives, sum_of_hinges

Contrast = Literal["hard", "sum"]
Sets = Literal["levels", "cumulative"]


class LadderLoss(RelevanceLoss):
    """Sum over levels l of beta_l L_l (Zhou et al., AAAI 2020, Eq. 7 and 8).

    Level 1 is the triplet loss, [alpha_1 - s_qq + s_qj]_+ over all other items. Level l >= 2 is
    [alpha_l - s_qi + s_qj]_+ over items i of N_(l-1) and items j of N_l and all lower sets. The sets, without q's own
    pair, are N_1 = {r >= theta_1}, N_2 = {theta_2 <= r < theta_1} and so on.

    Parameters
    ----------
    thresholds : sequence of float
        theta_1 > theta_2 > ..., in units of the label; L - 1 of them for L levels. (0.63,), as the released code for
        its labels; (0.63, 0.56) for a third level; 0.4 for S-BERT cosines (journal version).
    margins : sequence of float
        alpha_1..alpha_L, each 0 or more. 0.2, then 0.01 for each further level, as the paper.
    weights : sequence of float
        beta_1..beta_L, each 0 or more. 1, 0.25, 0.125, ..., as the paper.
    contrast : "hard" or "sum"
        "hard" uses the least similar i and the most similar j (Eq. 8, hard contrastive sampling). Its margin is
        alpha_l, as in Eq. 7 and the released code; Eq. 8 prints alpha_1 for level 2. "sum" adds all pairs (Eq. 7).
    sets : "levels" or "cumulative"
        "levels", as the paper, takes i only from N_(l-1). "cumulative", as the released code, takes i from all items
        with r >= theta_(l-1), the query's own pair included.
    fillers : bool
        Only with "hard" and "cumulative". As in the released code, items on the other side enter the minimum as 1 and
        the maximum as 0. A query then has a loss if all its lower items score below 0. In the paper, and by default, an
        empty set has loss 0.
    reduction, directions : "sum" or "mean"
        "sum", as the paper.

    Notes
    -----
    Labels: any range; [0, 1] in the paper, caption to caption. With `same_image`, a query's own items are never used as
    j. `ignore` is read only at level 1: the levels above have their own labels. Per level, time is O(B^2) for "hard"
    and O(B^2 log B) for "sum", by sorting.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.8, 0.3], [0.4, 0.2, 0.7]])
    >>> relevance = torch.tensor([[1.0, 0.7, 0.1], [0.7, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> {name: round(part.item(), 4) for name, part in LadderLoss().terms(scores, relevance).items()}
    {'level1_i2t': 0.0, 'level2_i2t': 0.13, 'level1_t2i': 0.0, 'level2_t2i': 0.08}
    """

    contrasts: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("thresholds", "margins", "weights", "contrast", "sets", "fillers")

    def __init__(
        self,
        thresholds: Sequence[float] = (0.63,),
        margins: Sequence[float] | None = None,
        weights: Sequence[float] | None = None,
        contrast: Contrast = "hard",
        sets: Sets = "levels",
        fillers: bool = False,
        reduction: Reduction = "sum",
        directions: Reduction = "sum",
    ) -> None:
        super().__init__(reduction, directions)
        self.thresholds = tuple(thresholds)
        levels = len(self.thresholds) + 1
        self.margins = (0.2, *[0.01] * (levels - 1)) if margins is None else tuple(margins)
        self.weights = (1.0, *[0.5**level for level in range(2, levels + 1)]) if weights is None else tuple(weights)
        for name, values in (("margins", self.margins), ("weights", self.weights)):
            if len(values) != levels:
                raise ValueError(
                    f"{len(self.thresholds)} thresholds make {levels} levels; there are {len(values)} {name}"
                )
            for value in values:
                check_number(name, value, at_least=0)
        for value in self.thresholds:
            check_number("thresholds", value)
        # Equal neighbours would make a level that no label belongs to.
        if any(a <= b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False)):
            raise ValueError(f"thresholds {self.thresholds} do not descend")
        check_choice("contrast", contrast, ("hard", "sum"))
        check_choice("sets", sets, ("levels", "cumulative"))
        if fillers and (contrast, sets) != ("hard", "cumulative"):
            raise ValueError('fillers need contrast="hard" and sets="cumulative"')
        self.contrast, self.sets, self.fillers = contrast, sets, fillers
        self.needs_relevance = levels > 1

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the weighted loss of each query at each level."""
        assert same_image is not None  # a paired loss always has the diagonal
        both: tuple[Parts, Parts] = ({}, {})
        for level, (margin, weight) in enumerate(zip(self.margins, self.weights, strict=True), 1):
            if level == 1:
                # Level 1 contrasts the query's pair with everything else, so it reads no labels.
                first = hardest_hinges if self.contrast == "hard" else sum_of_hinges
                losses = first(scores, no_negatives(same_image, ignore), margin)
            else:
                losses = self._level_loss(scores, *self.level_sets(relevance, same_image, level), margin)
            for parts, of_queries in zip(both, losses, strict=True):
                parts[f"level{level}"] = of_queries * weight
        return both

    def level_sets(self, relevance: Tensor | None, same_image: Tensor, level: int) -> tuple[Tensor, Tensor]:
        """Mark the pairs of a query and its items i, and those of a query and its items j, of a level from 2 on."""
        values, tolerance = float_labels(relevance), label_tolerance(relevance)
        similar = values >= self.thresholds[level - 2] - tolerance
        # Before levels above are taken off: an item of a higher level is never a j.
        lower = ~(similar | same_image)
        if self.sets == "levels" and level > 2:
            similar &= values < self.thresholds[level - 3] - tolerance
        # Only the released code uses the query's own pair as i.
        similar.fill_diagonal_(self.sets == "cumulative")
        return similar, lower

    def _level_loss(self, scores: Tensor, similar: Tensor, lower: Tensor, margin: float) -> tuple[Tensor, Tensor]:
        """Return the unweighted losses of images and of captions at one level, (B,) each."""
        if self.contrast == "sum":
            # Labels are thresholded once; caption queries read the same sets along columns.
            turned = scores.T.contiguous(), similar.T.contiguous(), lower.T.contiguous()
            return hinge_between(scores.contiguous(), similar, lower, margin), hinge_between(*turned, margin)
        # An empty side makes its extreme infinite and the hinge 0, with no gradient.
        above = torch.where(similar, scores, 1.0 if self.fillers else torch.inf)
        below = torch.where(lower, scores, 0.0 if self.fillers else -torch.inf)
        images, captions = ((margin - above.amin(dim) + below.amax(dim)).clamp(min=0) for dim in (1, 0))
        return images, captions
