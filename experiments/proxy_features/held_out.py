"""Selection of images, and of the caption of each that is held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.corpus import Corpus
from relabel.corpus.build import SPLITS
from relabel_train.batches.base import StableRandom

_REFERENCES = 5  # the held-out caption is one of the first five, which serve as references elsewhere


@dataclass(frozen=True, eq=False)
class HeldOut:
    """M images, each with the row of its held-out caption.

    Attributes
    ----------
    image : (M,) int64
        Image numbers, ascending.
    row : (M,) int64
        Row of the held-out caption of each image.
    """

    image: NDArray[np.int64]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.image)

    def images(self, corpus: Corpus) -> pa.Table:
        """Return the held-out captions: `image_id, split, caption_id, row, text`, one row per image."""
        held_out = corpus.table.take(pa.array(self.row))
        return held_out.select(["image_id", "split", "caption_id", "row", "text"])

    def captions(self, corpus: Corpus) -> pa.Table:
        """Return the other captions of the images: `caption_id, image_id, split, text`."""
        remaining = np.isin(corpus.image, self.image)
        remaining[self.row] = False
        return corpus.table.filter(pa.array(remaining)).select(["caption_id", "image_id", "split", "text"])


def hold_out(corpus: Corpus, counts: Mapping[str, int], seed: int) -> HeldOut:
    """Draw images per split, and one of the first five captions of each image.

    Images with a single caption are skipped, since no caption of theirs would remain.

    Raises
    ------
    UsageError
        If a split has fewer images than requested, or no images are requested.
    """
    images: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.int64]] = []
    for number, split in enumerate(SPLITS):
        count = counts.get(split, 0)
        if not count:
            continue
        span = corpus.images([split])
        candidates = np.arange(span.start, span.stop)
        candidates = candidates[np.diff(corpus.indptr)[candidates] > 1]
        if count > len(candidates):
            message = f"{count:,} images of {split} are requested; {len(candidates):,} have more than one caption"
            raise UsageError(message, todo=f"Set proxy_features.{split} to at most {len(candidates):,}.")
        # A generator per split: the draw of one split does not depend on the counts of the others.
        random = StableRandom(seed, number)
        selected = np.sort(candidates[random.permutation(len(candidates))[:count]])
        sizes = np.minimum(np.diff(corpus.indptr)[selected], _REFERENCES)
        # A draw below the least common multiple of 1 to 5 is uniform modulo every possible number of captions.
        position: Any = random.below(int(np.lcm.reduce(np.arange(1, _REFERENCES + 1))), count) % sizes
        images.append(selected)
        rows.append(corpus.indptr[selected] + position)
    if not images:
        raise UsageError("no images are requested", todo="Set proxy_features.train, .val or .test.")
    return HeldOut(np.concatenate(images), np.concatenate(rows))
