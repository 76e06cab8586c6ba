"""Graded batches: each caption meets, in its batch, candidates at every level of relevance.

Relevance is cut by thresholds t_1 > t_2 > ... > t_L into levels: level 1 is r >= t_1, level l is t_l <= r < t_(l-1),
and what lies below t_L is met by chance. An epoch is made of each caption once:

1. Of each caption's `depth` nearest, those that may be used and are not of its own image are its candidates, each in
   the level of its score.
2. Captions are gone through in random order; the next free one opens a group. The group's captions, in the order
   they came, and for each the levels 1..L, are gone through: where no caption of the group is a candidate of this
   caption at this level, one of its free candidates at this level, drawn at random, joins. A group is closed when it
   has `group` captions or nothing is left to do.
3. The groups, in random order and end to end, are cut into batches; so every batch is as graded as any other, and
   holds B / `group` groups that are random to each other.

Towards the end of step 2 few candidates are free, and groups stay small: that is the price of each caption once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relabel_train.batches.base import Captions, Draws, Neighbours, Rows, Sampler

_CHUNK = 4096  # captions whose neighbours are asked for at once


class GradedBatches(Sampler):
    """Batches by the algorithm above.

    Holds 5 bytes a caption and neighbour: 280 MB for the 566,747 captions of COCO's training split at depth 100.

    Parameters
    ----------
    neighbours : Neighbours
        Knows at least `depth` neighbours of every caption.
    levels : sequence of float
        Thresholds, falling, in the source's range; see `quantile_levels` where no numbers are known.
    group : int
        Most captions of a group, at least 2.
    siblings : bool
        Whether two captions of one image may be in one group (two groups of a batch may always bring two).
    depth : int
        Neighbours looked at.
    """

    name: ClassVar[str] = "graded"

    def __init__(
        self,
        captions: Captions,
        neighbours: Neighbours,
        batch_size: int,
        *,
        levels: Sequence[float],
        seed: int,
        drop_last: bool,
        group: int = 16,
        siblings: bool = False,
        depth: int = 100,
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        self.neighbours, self.levels, self.depth = neighbours, tuple(map(float, levels)), depth
        self.group, self.siblings = group, siblings
        if not self.levels or any(a <= b for a, b in zip(self.levels, self.levels[1:], strict=False)):
            raise ValueError(f"levels are {self.levels}; they must be falling thresholds, at least one")
        if len(self.levels) > _NONE:
            raise ValueError(f"{len(self.levels)} levels; at most {_NONE}")
        if group < 2:
            raise ValueError(f"group is {group}; a caption meets nobody in a group of less than 2")

    def __len__(self) -> int:
        """See Sampler."""
        return self._count(len(self.captions))

    @property
    def parameters(self) -> dict[str, Any]:
        """See Sampler."""
        own = {"levels": list(self.levels), "group": self.group, "siblings": self.siblings, "depth": self.depth}
        return super().parameters | own

    def epoch(self, epoch: int) -> list[Rows]:
        """See Sampler."""
        draws = Draws(self.seed, epoch)
        free, openers = np.ones(len(self.captions), np.bool_), draws.permutation(len(self.captions)).tolist()
        groups = [self._grow(opener, free, draws) for opener in openers if free[opener]]
        order = draws.permutation(len(groups)).tolist()
        return self._cut(np.array([place for g in order for place in groups[g]], np.int64))

    def _grow(self, opener: int, free: NDArray[np.bool_], draws: Draws) -> list[int]:
        """Make one group; its captions are free no more."""
        (near, level), image = self._candidates, self.captions.image
        group, inside, images = [opener], self._inside, {int(image[opener])}
        free[opener], inside[opener] = False, True
        for member in group:  # grows while it is gone through
            row, code = near[member], level[member]
            for wanted in range(len(self.levels)):
                at = row[code == wanted]
                if not len(at) or inside[at].any():
                    continue
                able = at[free[at]]
                if not self.siblings:
                    able = able[[int(i) not in images for i in image[able]]] if len(able) else able
                if not len(able):
                    continue
                joins = int(able[draws.one(len(able))])
                group.append(joins)
                free[joins], inside[joins] = False, True
                images.add(int(image[joins]))
                if len(group) == self.group:
                    break
            if len(group) == self.group:
                break
        inside[group] = False
        return group

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        """Which captions are in the group that grows: none, between groups."""
        return np.zeros(len(self.captions), np.bool_)

    @cached_property
    def _candidates(self) -> tuple[Rows, NDArray[np.uint8]]:
        """(N, depth) places and levels of each caption's candidates; _NONE where a neighbour is none."""
        shape = len(self.captions), self.depth
        near, level, thresholds = np.zeros(shape, np.int32), np.full(shape, _NONE, np.uint8), np.array(self.levels)
        for a in range(0, len(self.captions), _CHUNK):
            rows, scores, same_image = self.neighbours.neighbours(self.captions.rows[a : a + _CHUNK], self.depth)
            places = self.captions.places(rows)
            part = slice(a, a + len(places)), slice(0, places.shape[1])
            code = np.searchsorted(-thresholds, -np.asarray(scores, np.float64), side="left")
            code[(places < 0) | same_image | (code == len(thresholds))] = _NONE
            near[part], level[part] = np.maximum(places, 0), code
        return near, level


_NONE = 255


def quantile_levels(
    captions: Captions, neighbours: Neighbours, quantiles: Sequence[float], *, depth: int, seed: int = 0
) -> tuple[float, ...]:
    """Make thresholds of the scores of neighbours: those that the given shares of all candidates reach.

    Parameters
    ----------
    quantiles : sequence of float
        Rising, in 0..1, of all candidates (see the algorithm's step 1): 0.1, 0.5, 0.9 make levels of the best tenth,
        the next four tenths and the four after them.
    depth : int
        Neighbours looked at, of at most 5,000 captions drawn with `seed`.

    Returns
    -------
    tuple of float
        Falling; of equal thresholds one is kept.

    Raises
    ------
    ValueError
        If no caption has a candidate.
    """
    sample = np.sort(Draws(seed).permutation(len(captions))[:5000])
    rows, scores, same_image = neighbours.neighbours(captions.rows[sample], depth)
    found = np.sort(np.asarray(scores, np.float64)[(captions.places(rows) >= 0) & ~same_image])[::-1]
    if not len(found):
        raise ValueError("no caption has a neighbour that may be used and is not of its own image")
    last = [max(0, int(np.ceil(q * len(found))) - 1) for q in quantiles]
    return tuple(sorted({float(found[i]) for i in last}, reverse=True))
