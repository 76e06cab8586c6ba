"""Which images have a stand-in, and which of their captions it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.captions import SPLITS
from relabel.corpus import Corpus
from relabel.errors import UsageError
from relabel_train.batches.base import Draws


@dataclass(frozen=True, eq=False)
class Choice:
    """M images and the caption held out of each.

    Attributes
    ----------
    image : (M,) int64
        Image numbers, ascending.
    row : (M,) int64
        The row of the caption that stands for each.
    """

    image: NDArray[np.int64]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.image)

    def images(self, corpus: Corpus) -> pa.Table:
        """Write down what is held out: `image_id, split, caption_id, row, text`, one row an image."""
        held_out = corpus.table.take(pa.array(self.row))
        return held_out.select(["image_id", "split", "caption_id", "row", "text"])

    def captions(self, corpus: Corpus) -> pa.Table:
        """List what is left of the images' captions: `caption_id, image_id, split, text`."""
        kept = np.isin(corpus.image, self.image)
        kept[self.row] = False
        return corpus.table.filter(pa.array(kept)).select(["caption_id", "image_id", "split", "text"])


def choose(corpus: Corpus, counts: Mapping[str, int], seed: int) -> Choice:
    """Draw images and, of each, the caption that stands for it; of its first five, so that references stay.

    Images of a single caption are passed over: nothing would be left of them.

    Raises
    ------
    UsageError
        If a split has fewer images than are wanted, or none is wanted of a split that the corpus has.
    """
    images: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.int64]] = []
    for number, split in enumerate(SPLITS):
        wanted = counts.get(split, 0)
        if not wanted:
            continue
        span = corpus.images([split])
        all_images = np.arange(span.start, span.stop)
        able = all_images[np.diff(corpus.indptr)[all_images] > 1]
        if wanted > len(able):
            what = f"{wanted:,} images of {split} are wanted; {len(able):,} have more than one caption"
            raise UsageError(what, todo=f"Set proxy_features.{split} to at most {len(able):,}.")
        draws = Draws(seed, number)
        drawn = np.sort(able[draws.permutation(len(able))[:wanted]])
        sizes = np.minimum(np.diff(corpus.indptr)[drawn], 5)
        place: Any = draws.below(int(np.lcm.reduce(np.arange(1, 6))), wanted) % sizes
        images.append(drawn)
        rows.append(corpus.indptr[drawn] + place)
    if not images:
        raise UsageError("no images are wanted", todo="Set proxy_features.train, .val or .test.")
    return Choice(np.concatenate(images), np.concatenate(rows))
