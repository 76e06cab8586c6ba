"""Blocks of given scores (scores), with a number or another label for pairs without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.blocks import Blocks
from relabel_train.scoring.references import PaddedReferences, Pooling
from relabel_train.scoring.scores import GivenScores, Line, below


@dataclass(frozen=True, eq=False)
class ScoreBlocks:
    """Scores of pairs of an image and a caption.

    `image`: (N,) int32; as in `lookup.format`.
    `given`: by the number of the image and the position of the caption.
    `missing`: relevance of pairs without a score. With a `gate`, its relevance is mapped by `line` instead. None if
    every pair has a score.
    """

    image: NDArray[np.int32]
    given: GivenScores
    missing: float | None
    line: Line
    gate: Blocks | None

    def fill(self, images: PaddedReferences, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64."""
        scores, scored = self.given.find(self.image[images.firsts][:, None], captions)
        if self.gate is not None:
            self.gate.fill(images, captions, pooling, out)
            out[...] = below(out, self.line)
        elif self.missing is not None:
            out[...] = self.missing
        np.copyto(out, scores, where=scored, casting="same_kind")
