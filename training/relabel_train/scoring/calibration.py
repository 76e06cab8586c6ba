"""Calibration: human judgement as a function of relevance, the curve of a label, stored in its lookup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scale = Literal["relevance", "probability", "expected"]
"""Relevance in the bounds of its source; probability that people score a pair 4 or more; expected human score / 5."""
HIGHEST = 5.0
"""Highest human score."""


@dataclass(frozen=True)
class CalibrationCurve:
    """Human judgement of a caption of another image, as two functions of its relevance that never decrease.

    Both are linear between their knots and constant beyond them. A caption of the image itself is one of the image's
    references, so its relevance does not depend on what it says: `own` stands for all of these captions.

    `relevance`: (K,) knots, strictly ascending, in the units of the label.
    `expected`: (K,) expected human score at each knot, 0..5.
    `probability`: (K,) probability of a human score of 4 or more at each knot, 0..1.
    `own`: expected score and probability of captions of the image itself.
    """

    relevance: tuple[float, ...]
    expected: tuple[float, ...]
    probability: tuple[float, ...]
    own: tuple[float, float]

    @property
    def is_valid(self) -> bool:
        """True if the knots ascend, and the values are in their ranges and do not decrease."""
        limits = ((self.expected, self.own[0], HIGHEST), (self.probability, self.own[1], 1.0))
        rising = all(
            len(values) == len(self.relevance) and bool((np.diff([0.0, *values, most]) >= 0).all()) and 0 <= own <= most
            for values, own, most in limits
        )
        return len(self.relevance) > 0 and rising and bool((np.diff(self.relevance) > 0).all())

    def evaluate(self, relevance: ArrayLike, scale: Scale, same_image: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return relevance on a scale of 0 to 1: float64 of the shape of `relevance`; NaN stays NaN.

        `scale`: "relevance" returns it unchanged. `same_image`: marks pairs of an image and its captions; their value
        is `own`.
        """
        scores = np.asarray(relevance, np.float64)
        if scale == "relevance":
            return scores
        if scale == "probability":
            values, own = np.array(self.probability), self.own[1]
        else:
            values, own = np.array(self.expected) / HIGHEST, self.own[0] / HIGHEST
        out = np.interp(scores, self.relevance, values)
        return out if same_image is None else np.where(np.asarray(same_image) & ~np.isnan(out), own, out)

    def threshold(self, probability: float) -> float | None:
        """Return the minimum relevance with at least this probability.

        None if no relevance has it, and -inf if every relevance has it: the curve is constant below its first knot.
        """
        reached = np.flatnonzero(np.array(self.probability) >= probability)
        if not len(reached):
            return None
        last = reached[0]
        if last == 0:
            return -np.inf
        # The probability rises between the two knots, so the inverse is linear as well.
        left, right = last - 1, last + 1
        return float(np.interp(probability, self.probability[left:right], self.relevance[left:right]))
