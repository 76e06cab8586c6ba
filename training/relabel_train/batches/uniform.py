"""Random batches, as the released code of every paper trains."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from relabel_train.batches.base import Captions, Rows, Sampler, StableRandom


class RandomBatches(Sampler):
    """Batches with each caption once per epoch, in random order.

    The released code of VSE++ and its successors (SCAN, VSE-infinity, SGRAF, CVSE, ladder) does the same: every caption
    is a sample, and captions of one image may meet. At B = 128 about 20% of Flickr30K's batches and 6% of COCO's hold
    two captions of one image (29,000 and 113,287 images).

    Parameters
    ----------
    one_caption_an_image : bool
        Use each image once per epoch instead, with one of its captions, drawn again every epoch: no two captions of one
        image meet, and an epoch is a fifth as long. No released code does this, but the losses' definitions assume it.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.batches import Captions, RandomBatches
    >>> captions = Captions.of(np.array([0, 0, 1, 1, 2, 2]))
    >>> [rows.tolist() for rows in RandomBatches(captions, 4, seed=0, drop_last=False).epoch(0)]
    [[3, 2, 1, 0], [4, 5]]
    >>> sampler = RandomBatches(captions, 3, seed=0, drop_last=False, one_caption_an_image=True)
    >>> [rows.tolist() for rows in sampler.epoch(0)]
    [[4, 1, 3]]
    """

    name: ClassVar[str] = "random"

    def __init__(
        self, captions: Captions, batch_size: int, *, seed: int, drop_last: bool, one_caption_an_image: bool = False
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        self.one_caption_an_image = one_caption_an_image
        self._images = len(np.unique(captions.image)) if one_caption_an_image else 0

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return self._count(self._images if self.one_caption_an_image else len(self.captions))

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        return super().parameters | {"one_caption_an_image": self.one_caption_an_image}

    def epoch(self, epoch: int) -> list[Rows]:
        """List the batches of an epoch: (B,) int32 caption rows each."""
        random = StableRandom(self.seed, epoch)
        order = random.permutation(len(self.captions))
        if self.one_caption_an_image:
            # The first caption of each image in a random order of all is a random one of its captions.
            _, first = np.unique(self.captions.image[order], return_index=True)
            # np.unique sorts by image, so the images are shuffled again.
            order = order[first][random.permutation(len(first))]
        return self._cut(order)
