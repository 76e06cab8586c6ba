"""Relevance from scene-graph tuples (spice): F1 of a caption's tuples and those that an image's references match.

Synonyms and the merging of references are resolved when the lookup is written: tuples are numbers, and the matching
numbers of every image, and of every caption as the only reference, are listed. A batch of 128 images and 128 captions
has about 10,000 entries of the images and 800 of the captions; common entries are counted per cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.blocks import ColumnNumbers
from relabel_train.scoring.references import PaddedReferences, Pooling, ranges


@dataclass(frozen=True, eq=False)
class SpiceBlocks:
    """Numbered tuples of captions.

    `image`: (N,) int32; as in `lookup.format`.
    `indptr`, `tuples`: (N + 1,) int64, int32; tuples of each caption.
    `caption_indptr`, `caption_matches`: (N + 1,) int64, int32; tuples that match those of each caption.
    `image_indptr`, `image_matches`: (M + 1,) int64, int32; tuples that match those of each image's merged references.
    `image_size`: (M,) int32; number of tuples of each image's merged references.
    """

    image: NDArray[np.int32]
    indptr: NDArray[np.int64]
    tuples: NDArray[np.int32]
    caption_indptr: NDArray[np.int64]
    caption_matches: NDArray[np.int32]
    image_indptr: NDArray[np.int64]
    image_matches: NDArray[np.int32]
    image_size: NDArray[np.int32]
    numbers: ColumnNumbers

    @classmethod
    def open(cls, arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int]) -> SpiceBlocks:
        """Wrap the arrays of a lookup."""
        names = ("indptr", "tuples", "caption_indptr", "caption_matches", "image_indptr", "image_matches", "image_size")
        named = {name: arrays[f"scene_graphs.{name}"] for name in names}
        return cls(image=arrays["image"], **named, numbers=ColumnNumbers(sizes["tuples"], 0))

    def fill(self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64; F1 is computed in float64."""
        # "set" compares with the merged tuples of all references; other poolings compare with one reference at a time.
        if pooling == "set":
            chosen = self.image[images.firsts]
            matched = self._count(self.image_indptr, self.image_matches, chosen, captions)
            out[...] = self._f1(matched, self.image_size[chosen], captions)
            return
        references = images.positions.reshape(-1)
        matched = self._count(self.caption_indptr, self.caption_matches, references, captions)
        sizes = self.indptr[references + 1] - self.indptr[references]
        scores = self._f1(matched, sizes, captions)
        out[...] = images.pool(scores, pooling)

    def _count(
        self,
        indptr: NDArray[np.int64],
        matches: NDArray[np.int32],
        references: NDArray[Any],
        captions: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Count the tuples of C captions that R references match: (R, C)."""
        caption_sizes = self.indptr[captions + 1] - self.indptr[captions]
        theirs = self.tuples.take(ranges(self.indptr[captions], caption_sizes))
        first = indptr[references]
        sizes = indptr[references.astype(np.int64) + 1] - first
        ours = matches.take(ranges(first, sizes))
        # The candidates' tuples get small numbers; -1 marks tuples of references that no candidate has.
        with self.numbers.numbered(theirs) as numbers:
            number, matches_number = numbers.take(theirs), numbers.take(ours)
        shared = np.flatnonzero(matches_number >= 0)
        row = np.repeat(np.arange(len(references)), sizes).take(shared)
        matches_number = matches_number.take(shared)
        # Postings: the captions that hold each tuple, by its number.
        holders = np.bincount(number, minlength=len(theirs))
        caption = np.repeat(np.arange(len(captions)), caption_sizes).take(np.argsort(number, kind="stable"))
        begin, pairs = np.cumsum(holders) - holders, holders.take(matches_number)
        # One cell (reference, caption) per common tuple; cells are then counted.
        cell = np.repeat(row * len(captions), pairs)
        cell += caption.take(ranges(begin.take(matches_number), pairs))
        return np.bincount(cell, minlength=len(references) * len(captions)).reshape(len(references), len(captions))

    def _f1(self, matched: NDArray[np.int64], sizes: NDArray[Any], captions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute F1 from counts, (R, C), by the operations of the SPICE jar, to give the pipeline's bits."""
        # Pairs without a common tuple are 0 and would divide 0 by 0.
        i, j = np.nonzero(matched)
        count = matched[i, j]
        caption_sizes = self.indptr[captions + 1] - self.indptr[captions]
        precision, recall = count / caption_sizes[j], count / sizes[i]
        scores = np.zeros(matched.shape)
        scores[i, j] = 2.0 * (precision * recall) / (precision + recall)
        return scores
