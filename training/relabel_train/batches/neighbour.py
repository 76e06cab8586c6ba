"""Batches around one caption: an anchor, its nearest captions, and random others; as the log-ratio loss is trained.

Kim, Seo, Laptev, Cho, Kwak: "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, section 4.2.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from relabel_train.batches.base import Captions, Draws, Neighbours, Rows, Sampler

_CHUNK = 4096  # anchors whose neighbours are asked for at once


class NeighbourBatches(Sampler):
    """Each batch is an anchor, its k nearest captions, best first, and random others from the rest.

    Anchors come from random orders of all captions, one order after another through the epochs: none is an anchor
    twice before all were once. Where fewer than k of an anchor's `depth` nearest may be used, random captions stand in.

    Parameters
    ----------
    neighbours : Neighbours
        Knows at least `depth` neighbours of every caption.
    batch_size : int
        The paper has 50 for captions.
    k : int
        Nearest captions a batch; the paper has 5.
    siblings : bool
        Whether captions of one image may meet in a batch. With False a batch may be short where images are few.
    depth : int, optional
        Neighbours looked at to find k that may be used; k + 15 by default (an image has some four other captions).
    anchors : int, optional
        Anchors, so batches, an epoch; by default as many as there are random batches.
    """

    name: ClassVar[str] = "neighbour"

    def __init__(
        self,
        captions: Captions,
        neighbours: Neighbours,
        batch_size: int = 50,
        *,
        seed: int,
        drop_last: bool,
        k: int = 5,
        siblings: bool = False,
        depth: int | None = None,
        anchors: int | None = None,
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        if not 0 <= k < batch_size:
            raise ValueError(f"k is {k}; a batch of {batch_size} has room for 0..{batch_size - 1} neighbours")
        self.neighbours, self.k, self.siblings = neighbours, k, siblings
        self.depth = k + 15 if depth is None else depth
        self.anchors = self._count(len(captions)) if anchors is None else anchors

    def __len__(self) -> int:
        """See Sampler."""
        most = len(self.captions) if self.siblings else len(np.unique(self.captions.image))
        return 0 if most == 0 or (self.drop_last and most < self.batch_size) else self.anchors

    @property
    def parameters(self) -> dict[str, Any]:
        """See Sampler."""
        own = {"k": self.k, "siblings": self.siblings, "depth": self.depth, "anchors": self.anchors}
        return super().parameters | own

    def epoch(self, epoch: int) -> list[Rows]:
        """See Sampler."""
        anchors, draws = self._anchors(epoch), Draws(self.seed, 1, epoch)
        found: list[Rows] = []
        for a in range(0, len(anchors), _CHUNK):
            some = anchors[a : a + _CHUNK]
            near = self.captions.places(self.neighbours.neighbours(self.captions.rows[some], self.depth)[0])
            found += [self._batch(int(p), near[i].tolist(), draws) for i, p in enumerate(some)]
        return found

    def _anchors(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Places of the anchors of an epoch."""
        count, start = len(self.captions), epoch * len(self)
        stop = start + len(self)
        if not count or start == stop:
            return np.empty(0, np.int64)
        orders = [Draws(self.seed, 0, n).permutation(count) for n in range(start // count, -(-stop // count))]
        return np.concatenate(orders)[start % count :][: stop - start]

    def _batch(self, anchor: int, near: list[int], draws: Draws) -> Rows:
        image, size = self.captions.image, self.batch_size
        chosen, images = {anchor: None}, {int(image[anchor])}

        def take(place: int) -> None:
            if place >= 0 and place not in chosen and (self.siblings or int(image[place]) not in images):
                chosen[place] = None
                images.add(int(image[place]))

        for place in near:
            if len(chosen) == self.k + 1:
                break
            take(place)
        count = len(self.captions)
        # A few draws fill a batch of a large corpus; a small one, or one of few images, is gone through in whole.
        for whole in (False, True):
            if len(chosen) == size:
                break
            for place in (draws.permutation(count) if whole else draws.below(count, 4 * size)).tolist():
                take(place)
                if len(chosen) == size:
                    break
        return self.captions.rows[list(chosen)]
