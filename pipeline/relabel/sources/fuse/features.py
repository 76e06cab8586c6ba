"""What a fuse looks at: the relevance that its parts give, each under some poolings.

A feature is a part and a pooling.
`max`, `second` and `mean` are of the part's scores of single references, `refs` is the part's own score of the set. The
`second` is the second largest; of a single reference it is that one's score, as are all others. `of_pairs` and
`of_block` give the same bits where the parts do: a tree's threshold forgives no difference.
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

Look = Literal["max", "second", "mean", "refs"]
SINGLES: tuple[Look, ...] = ("max", "second", "mean")
"""Poolings of scores of single references."""


class Feature(NamedTuple):
    """One column of what a model takes: a part, by label, and how its references are pooled."""

    part: str
    pooling: Look

    def __str__(self) -> str:
        return f"{self.part} {self.pooling}"


def pooled(values: Scores, indptr: NDArray[np.int64], how: Look) -> Scores:
    """Reduce one score a reference to one score a set, in one order of operations whatever the shape. NaN stays NaN.

    Parameters
    ----------
    values : (indptr[-1], ...) float64
    indptr : (P + 1,) int64
        No set is empty.
    how : "max", "second" or "mean"

    Returns
    -------
    (P, ...) float64
    """
    sizes = np.diff(indptr)
    out = np.empty((len(sizes), *values.shape[1:]))
    for size in np.unique(sizes).tolist():
        some = np.flatnonzero(sizes == size)
        out[some] = _POOL[how]([values[indptr[some] + r] for r in range(size)])
    return out


def _largest(scores: list[Scores]) -> Scores:
    return reduce(np.maximum, scores)


def _second(scores: list[Scores]) -> Scores:
    best, second = scores[0], scores[0] if len(scores) == 1 else np.full_like(scores[0], -np.inf)
    for score in scores[1:]:
        second = np.maximum(second, np.minimum(best, score))
        best = np.maximum(best, score)
    return second


def _mean(scores: list[Scores]) -> Scores:
    return reduce(np.add, scores) / len(scores)


_POOL: dict[Look, Callable[[list[Scores]], Scores]] = {"max": _largest, "second": _second, "mean": _mean}


def of_pairs(
    parts: Mapping[str, Relevance], features: Sequence[Feature], references: References, captions: Rows
) -> Scores:
    """Make the features of P pairs of a reference set and a caption: (P, F) float64."""
    out = np.empty((len(references), len(features)))
    singles: dict[str, Scores] = {}
    each = np.repeat(captions, np.diff(references.indptr))
    for f, (part, how) in enumerate(features):
        if how == "refs":
            out[:, f] = parts[part].pairs(references, captions, "refs")
            continue
        if part not in singles:
            singles[part] = parts[part].pairs(References.single(references.rows), each, "paired")
        out[:, f] = pooled(singles[part], references.indptr, how)
    return out


Scorer = Callable[[References, Pooling], Scores]
"""Scores reference sets against candidates that were prepared once; see Relevance.against."""


def of_block(scorers: Mapping[str, Scorer], features: Sequence[Feature], references: References, count: int) -> Scores:
    """Make the features of M sets against N = `count` candidates: (M * N, F) float64, set by set."""
    out = np.empty((len(references), count, len(features)))
    singles: dict[str, Scores] = {}
    for f, (part, how) in enumerate(features):
        if how == "refs":
            out[:, :, f] = scorers[part](references, "refs")
            continue
        if part not in singles:
            singles[part] = scorers[part](References.single(references.rows), "paired")
        out[:, :, f] = pooled(singles[part], references.indptr, how)
    return out.reshape(-1, len(features))
