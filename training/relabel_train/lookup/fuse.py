"""Blocks of a label that combines other labels (fuse)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.blocks import Blocks
from relabel_train.scoring.fuse import Curve, Feature, Head, HeadName, score_sets
from relabel_train.scoring.references import PaddedReferences, Pooling


@dataclass(frozen=True, eq=False)
class FuseBlocks:
    """A function of parts, by their numbers, computed in float64."""

    parts: Mapping[str, Blocks]
    heads: Mapping[HeadName, Head]

    @classmethod
    def open(cls, parts: Sequence[Blocks], heads: Mapping[HeadName, Any]) -> FuseBlocks:
        """Wrap the heads of `lookup.json`; their curves are (number of the part, pooling, knots, values)."""
        opened = {
            name: Head(tuple(Curve(Feature(str(part), how), x, y) for part, how, x, y in head["curves"]), head["cap"])
            for name, head in heads.items()
        }
        return cls({str(i): part for i, part in enumerate(parts)}, opened)

    def fill(self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64."""
        out[...] = score_sets(self.heads, self._score, images, captions, pooling, block=True)

    def _score(
        self, part: str, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling
    ) -> NDArray[np.float64]:
        """Return the block of a part."""
        scores = np.empty((len(images), len(captions)))
        self.parts[part].fill(images, captions, pooling, scores)
        return scores
