"""Random batches: what every paper's code trains with."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from relabel_train.batches.base import Captions, Draws, Rows, Sampler


class RandomBatches(Sampler):
    """Each caption once an epoch, in random order.

    So does the code of VSE++ and of all that came of it (SCAN, VSE-infinity, SGRAF, CVSE, ladder): every caption is a
    sample, and none of them keeps captions of one image apart. At B = 128 about 20% of Flickr30K's batches and 6% of
    COCO's hold two captions of one image (29,000 and 113,287 images).

    Parameters
    ----------
    one_caption_an_image : bool
        Each image once an epoch instead, with one of its captions drawn anew every epoch: no two of one image meet,
        and an epoch is a fifth as long. No released code does this; it is what the losses' definitions assume.
    """

    name: ClassVar[str] = "random"

    def __init__(
        self, captions: Captions, batch_size: int, *, seed: int, drop_last: bool, one_caption_an_image: bool = False
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        self.one_caption_an_image = one_caption_an_image
        self._images = len(np.unique(captions.image)) if one_caption_an_image else 0

    def __len__(self) -> int:
        """See Sampler."""
        return self._count(self._images if self.one_caption_an_image else len(self.captions))

    @property
    def parameters(self) -> dict[str, Any]:
        """See Sampler."""
        return super().parameters | {"one_caption_an_image": self.one_caption_an_image}

    def epoch(self, epoch: int) -> list[Rows]:
        """See Sampler."""
        draws = Draws(self.seed, epoch)
        order = draws.permutation(len(self.captions))
        if self.one_caption_an_image:  # of each image the caption that comes first in a random order of all
            _, first = np.unique(self.captions.image[order], return_index=True)
            order = order[first][draws.permutation(len(first))]
        return self._cut(order)
