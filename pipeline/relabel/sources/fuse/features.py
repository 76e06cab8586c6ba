"""Features of a fuse: the relevance of its parts, under several poolings.

A feature is a part and a pooling. `max`, `second` (the second largest) and `mean` pool the part's scores of single
references, and `refs` is the part's own score of the set. For a set of one reference, the first three are its score.

`pair_features` and `block_features` give the same bits if the parts do. Rounding differences would not be harmless: a
tree compares features with thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.relevance import Relevance

FeaturePooling = Literal["max", "second", "mean", "refs"]
SINGLE_POOLINGS: tuple[FeaturePooling, ...] = ("max", "second", "mean")
"""Poolings of the scores of single references."""


class Feature(NamedTuple):
    """One column of a model's input: the label of a part, and the pooling of its references."""

    part: str
    pooling: FeaturePooling

    def __str__(self) -> str:
        return f"{self.part} {self.pooling}"


def pool_scores(values: Scores, indptr: NDArray[np.int64], pooling: FeaturePooling) -> Scores:
    """Reduce one score per reference to one score per set. NaN stays NaN.

    `values`: (indptr[-1], ...) float64. `indptr`: (P + 1,) int64; the references of set p are ``indptr[p]:indptr[p +
    1]``; no set is empty. Returns (P, ...) float64.
    """
    # Sets of one size are reduced together, reference by reference: one order of operations for every shape.
    sizes = np.diff(indptr)
    out = np.empty((len(sizes), *values.shape[1:]))
    for size in np.unique(sizes).tolist():
        sets = np.flatnonzero(sizes == size)
        out[sets] = _POOL[pooling]([values[indptr[sets] + r] for r in range(size)])
    return out


def _largest(scores: list[Scores]) -> Scores:
    return reduce(np.maximum, scores)


def _second(scores: list[Scores]) -> Scores:
    # Invariant: `best` and `second` are the two largest of the scores so far.
    best, second = scores[0], scores[0] if len(scores) == 1 else np.full_like(scores[0], -np.inf)
    for score in scores[1:]:
        second = np.maximum(second, np.minimum(best, score))
        best = np.maximum(best, score)
    return second


def _mean(scores: list[Scores]) -> Scores:
    return reduce(np.add, scores) / len(scores)


_POOL: dict[FeaturePooling, Callable[[list[Scores]], Scores]] = {"max": _largest, "second": _second, "mean": _mean}


def pair_features(
    parts: Mapping[str, Relevance], features: Sequence[Feature], references: References, captions: Rows
) -> Scores:
    """Compute the features of P pairs of a reference set and a caption, (P, F) float64."""
    out = np.empty((len(references), len(features)))
    singles: dict[str, Scores] = {}  # scores of single references, which several poolings share
    each = np.repeat(captions, np.diff(references.indptr))
    for f, (part, pooling) in enumerate(features):
        if pooling == "refs":
            out[:, f] = parts[part].pairs(references, captions, "refs")
            continue
        if part not in singles:
            singles[part] = parts[part].pairs(References.single(references.rows), each, "paired")
        out[:, f] = pool_scores(singles[part], references.indptr, pooling)
    return out


Scorer = Callable[[References, Pooling], Scores]
"""Scorer of reference sets against candidates that were prepared once; see `Relevance.against`."""


def block_features(
    scorers: Mapping[str, Scorer], features: Sequence[Feature], references: References, count: int
) -> Scores:
    """Compute the features of M sets against N = `count` candidates, (M * N, F) float64, set by set."""
    out = np.empty((len(references), count, len(features)))
    singles: dict[str, Scores] = {}
    for f, (part, pooling) in enumerate(features):
        if pooling == "refs":
            out[:, :, f] = scorers[part](references, "refs")
            continue
        if part not in singles:
            singles[part] = scorers[part](References.single(references.rows), "paired")
        out[:, :, f] = pool_scores(singles[part], references.indptr, pooling)
    return out.reshape(-1, len(features))
