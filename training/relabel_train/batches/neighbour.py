"""Batches around one caption for the log-ratio loss: an anchor, its nearest captions, and random others.

Kim, Seo, Laptev, Cho, Kwak: "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, section 4.2.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from relabel_train.batches.base import Captions, Neighbours, Rows, Sampler, StableRandom

_CHUNK = 4096  # anchors per call for neighbours


class NeighbourBatches(Sampler):
    """Batches of an anchor, its k nearest captions, best first, and random others.

    Anchors come from random orders of all captions, one order after another through the epochs, so that no caption is
    an anchor twice before all were once. If fewer than k of an anchor's `depth` nearest are usable, random captions
    replace them.

    Parameters
    ----------
    neighbours : Neighbours
        With at least `depth` neighbours of every caption.
    batch_size : int
        50 for captions in the paper.
    k : int
        Nearest captions per batch; 5 in the paper.
    siblings : bool
        Allow captions of one image in a batch. With False batches of few images may be short.
    depth : int, optional
        Neighbours examined to find k usable ones; k + 15 by default (an image has about four other captions).
    anchors : int, optional
        Anchors, which are batches, per epoch; by default as many as there are random batches.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.batches import NeighbourBatches
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup(tempfile.mkdtemp()))
    >>> sampler = NeighbourBatches(lookup.captions(), lookup, 3, seed=0, drop_last=False, k=1, depth=5)
    >>> [rows.tolist() for rows in sampler.epoch(0)]  # an anchor, its nearest caption of another image, a random one
    [[3, 4, 1], [2, 1, 5]]
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
        """Return the number of batches per epoch."""
        most = len(self.captions) if self.siblings else len(np.unique(self.captions.image))
        return 0 if most == 0 or (self.drop_last and most < self.batch_size) else self.anchors

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        specific = {"k": self.k, "siblings": self.siblings, "depth": self.depth, "anchors": self.anchors}
        return super().parameters | specific

    def epoch(self, epoch: int) -> list[Rows]:
        """List the batches of an epoch: (B,) int32 caption rows each."""
        anchors, random = self._anchors(epoch), StableRandom(self.seed, 1, epoch)
        batches: list[Rows] = []
        for a in range(0, len(anchors), _CHUNK):
            chunk = anchors[a : a + _CHUNK]
            near = self.captions.positions_of(
                self.neighbours.neighbours(self.captions.rows[chunk], self.depth, "nan")[0]
            )
            batches += [self._batch(int(p), near[i].tolist(), random) for i, p in enumerate(chunk)]
        return batches

    def _anchors(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the positions of the anchors of an epoch."""
        count, start = len(self.captions), epoch * len(self)
        stop = start + len(self)
        if not count or start == stop:
            return np.empty(0, np.int64)
        # Epochs read on where the one before stopped in an endless sequence of random orders of all captions.
        orders = [StableRandom(self.seed, 0, n).permutation(count) for n in range(start // count, -(-stop // count))]
        return np.concatenate(orders)[start % count :][: stop - start]

    def _batch(self, anchor: int, near: list[int], random: StableRandom) -> Rows:
        """Make the batch of one anchor, given the positions of its neighbours (-1: not usable)."""
        image, size = self.captions.image, self.batch_size
        # A dict keeps the order: the anchor first, then its neighbours, best first.
        chosen, images = {anchor: None}, {int(image[anchor])}

        def add(position: int) -> None:
            if position >= 0 and position not in chosen and (self.siblings or int(image[position]) not in images):
                chosen[position] = None
                images.add(int(image[position]))

        for position in near:
            if len(chosen) == self.k + 1:
                break
            add(position)
        count = len(self.captions)
        # A few draws fill a batch of a large corpus. A small corpus, or one of few images, is searched completely.
        for exhaustive in (False, True):
            if len(chosen) == size:
                break
            for position in (random.permutation(count) if exhaustive else random.below(count, 4 * size)).tolist():
                add(position)
                if len(chosen) == size:
                    break
        return self.captions.rows[list(chosen)]
