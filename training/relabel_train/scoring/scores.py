"""Relevance from given scores of images and captions, and the rule for pairs without a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Line = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class GivenScores:
    """Scores of pairs of an image and a caption.

    `keys`: (n,) int64; pairs, ascending: the number of the image times `captions`, plus the position of the caption.
    `values`: (n,) float64; score of each pair.
    `captions`: number of captions that the keys count.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.float64]
    captions: int

    def find(
        self, images: NDArray[np.integer], captions: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the scores of pairs of images and captions, and a mask of those that have one; others are arbitrary.

        Both arrays are broadcast against each other: a column of images and a row of captions give a block.
        """
        keys = images.astype(np.int64) * self.captions + captions
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.values[at], self.keys[at] == keys


def gate_line(bounds: tuple[float, float], gate: tuple[float, float]) -> Line:
    """Return a, b and c of `below`.

    The best relevance by the gate becomes the minimum score c; the worst becomes c minus the width of `bounds`.
    """
    (low, high), (worst, best) = bounds, gate
    slope = (high - low) / (best - worst)
    return low - slope * best, slope, low


def below(relevance: NDArray[Any], line: Line) -> NDArray[Any]:
    """Map relevance by the gate to that of pairs without a score: min(a + b g, c)."""
    a, b, most = line
    return np.asarray(np.minimum(a + b * relevance, most))
