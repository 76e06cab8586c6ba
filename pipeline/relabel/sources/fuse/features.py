"""Features of a fuse: the relevance of its parts, under several poolings.

`max` and `mean` pool the part's scores of single references, and `refs` is the part's own score of the set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.relevance import Relevance, pool

FeaturePooling = Literal["max", "mean", "refs"]
Score = Callable[[str, References, Pooling], Scores]
"""Takes a part's label, M reference sets and a pooling; returns their scores, (M, ...) float64."""


class Feature(NamedTuple):
    """The label of a part, and the pooling of its references."""

    part: str
    pooling: FeaturePooling


def compute_features(features: Sequence[Feature], references: References, score: Score) -> Iterator[Scores]:
    """Yield each feature of M reference sets, (M, ...) float64; several poolings share the scores of a part."""
    singles: dict[str, Scores] = {}
    for part, pooling in features:
        if pooling == "refs":
            yield score(part, references, "refs")
            continue
        if part not in singles:
            singles[part] = score(part, References.single(references.rows), "paired")
        yield pool(singles[part], references.indptr, pooling)


def pair_features(
    parts: Mapping[str, Relevance], features: Sequence[Feature], references: References, captions: Rows
) -> Iterator[Scores]:
    """Yield each feature of P pairs of a reference set and a caption, (P,) float64."""
    each = np.repeat(captions, np.diff(references.indptr))

    def score(part: str, asked: References, pooling: Pooling) -> Scores:
        # Single references repeat the caption of their set.
        return parts[part].pairs(asked, each if pooling == "paired" else captions, pooling)

    return compute_features(features, references, score)
