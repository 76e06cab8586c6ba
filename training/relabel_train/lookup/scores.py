"""Relevance from given scores of pairs (scores), with a number or another label for pairs without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.blocks import Blocks, References
from relabel_train.lookup.format import Pooling


@dataclass(frozen=True, eq=False)
class ScoreBlocks:
    """Scores of pairs of an image and a caption.

    `image`: (N,) int32; as in `lookup.format`.
    `keys`: (n,) int64; pairs, ascending: the number of the image times N, plus the position of the caption.
    `scores`: (n,) float64.
    `missing`: relevance of pairs without a score, unless there is a `gate`: with one, it is min(a + b g, c), g being
        the relevance by the gate and a, b, c the `line`. None if every pair has a score.
    """

    image: NDArray[np.int32]
    keys: NDArray[np.int64]
    scores: NDArray[np.float64]
    missing: float | None
    line: tuple[float, float, float]
    gate: Blocks | None

    def fill(self, images: References, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64."""
        keys = self.image[images.positions[0]].astype(np.int64)[:, None] * len(self.image) + captions
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found = self.keys[at] == keys
        if self.gate is not None:
            self.gate.fill(images, captions, pooling, out)
            a, b, most = self.line
            out[...] = np.minimum(a + b * out, most)
        elif self.missing is not None:
            out[...] = self.missing
        np.copyto(out, self.scores[at], where=found, casting="same_kind")
