"""Relevance from other labels: relevances of the parts, pooled, each through a piecewise-linear curve.

A model has two heads over the same parts: `set` scores a caption against the references of an image, and `single`
scores it against one reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel_train.scoring.references import Pooling, Sets

F8 = NDArray[np.float64]
FeaturePooling = Literal["max", "mean", "set"]
"""`max` and `mean` pool the part's scores of single references, and `set` is the part's own score of the set."""
HeadName = Literal["set", "single"]
BOUNDS = (0.0, 1.0)
"""Range of relevance: human scores 0..5, divided by 5."""
_CELLS = 1 << 21  # scores of single references held at a time: 16 MiB


class Feature(NamedTuple):
    """Relevance of a part, by its label, under a pooling of its references."""

    part: str
    pooling: FeaturePooling


class Curve(NamedTuple):
    """Piecewise-linear function of one feature: `values` at ascending `knots`, and constant outside of them."""

    feature: Feature
    knots: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Head:
    """Fitted sum of curves, at least 0 and at most `cap`."""

    curves: tuple[Curve, ...]
    cap: float = BOUNDS[1]

    @property
    def features(self) -> tuple[Feature, ...]:
        """Feature of each curve."""
        return tuple(curve.feature for curve in self.curves)

    @property
    def steepness(self) -> float:
        """Sum of the steepest slopes: a change of every feature by d changes a score by at most this times d."""
        return float(sum(np.max(np.abs(np.diff(c.values) / np.diff(c.knots)), initial=0) for c in self.curves))

    def score(self, features: Iterable[F8]) -> F8:
        """Score pairs by their features, arrays of one shape; NaN where a feature is."""
        terms = (np.interp(x, c.knots, c.values) for c, x in zip(self.curves, features, strict=True))
        return np.clip(sum(terms), BOUNDS[0], self.cap)


PartScores = Callable[[str, Sets, NDArray[Any], Pooling], F8]
"""Scores of a part, by its label: of sets and a caption each, (M,) float64; of a block with N captions, (M, N)."""


def compute_features(
    score: PartScores[Sets], features: Sequence[Feature], sets: Sets, captions: NDArray[Any], block: bool
) -> Iterator[F8]:
    """Yield each feature of M sets and a caption each, (M,) float64; of a block with N captions, (M, N)."""
    # Several poolings share the scores of single references, for each of which a pair repeats the caption of its set.
    each, singles = captions if block else np.repeat(captions, sets.sizes), dict[str, F8]()
    for part, pooling in features:
        if pooling == "set":
            yield score(part, sets, captions, "set")
            continue
        if part not in singles:
            singles[part] = score(part, sets.singles(), each, "first")
        yield sets.pool(singles[part], pooling)


def score_sets(
    heads: Mapping[HeadName, Head],
    score: PartScores[Sets],
    sets: Sets,
    captions: NDArray[Any],
    pooling: Pooling,
    block: bool,
) -> F8:
    """Score each set against its caption or, in a block, against all captions.

    `set` scores a set by the set head, or by the single head if the set is one reference. `first` scores the first
    reference by the single head. `max` and `mean` pool the single head's scores of all references.
    """
    if pooling in ("max", "mean"):
        each = captions if block else np.repeat(captions, sets.sizes)
        return sets.pool(score_sets(heads, score, sets.singles(), each, "first", block), pooling)
    sets = sets.first() if pooling == "first" else sets
    sizes, width = sets.sizes, len(captions) if block else 1
    out = np.empty((len(sizes), width) if block else len(sizes))
    # As many sets at a time as have `_CELLS` scores of single references, and at least one.
    step = max(1, _CELLS // max(1, width * int(sizes.max(initial=1))))
    # The single head was fitted to single references, the set head to sets of several.
    for head, chosen in (heads["single"], np.flatnonzero(sizes == 1)), (heads["set"], np.flatnonzero(sizes > 1)):
        for a in range(0, len(chosen), step):
            some = chosen[a : a + step]
            if len(some) == len(sizes):
                # The usual case: no set is copied.
                return head.score(compute_features(score, head.features, sets, captions, block))
            own = captions if block else captions[some]
            out[some] = head.score(compute_features(score, head.features, sets.take(some), own, block))
    return out
