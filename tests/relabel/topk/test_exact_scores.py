"""Contract: an exact score is a float64 sum of float32 products in one stated order of additions; it depends neither on
the pairs that are scored with it nor on which of its two vectors is the query.
"""

from __future__ import annotations

import numpy as np
import pytest

from relabel.corpus import References
from relabel.topk.exact_scores import LANES, score_pairs


@pytest.mark.parametrize("width", [1, 31, 32, 77])
def test_a_score_depends_on_its_pair_only(width: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((50, width)).astype(np.float32)
    a, b = np.arange(25), np.arange(25, 50)
    scores = score_pairs(vectors, References.single(a), b, "max")
    one_by_one = [score_pairs(vectors, References.single(a[i : i + 1]), b[i : i + 1], "mean")[0] for i in range(25)]
    swapped = score_pairs(vectors, References.single(b), a, "first")
    assert scores.tolist() == one_by_one == swapped.tolist()
    for i in range(25):  # the order of additions that `dot` documents
        lanes = [0.0] * LANES
        for d in range(width):
            lanes[d % LANES] += float(vectors[a[i], d]) * float(vectors[b[i], d])
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [x + y for x, y in zip(lanes[:half], lanes[half:], strict=True)]
        assert scores[i] == lanes[0]


def test_a_set_is_pooled_and_nan_is_kept() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.5, 0.25], [np.nan, 0]], np.float32)
    sets = References.of([[0, 1]] * 3)
    candidates = np.array([2, 2, 3])
    assert score_pairs(vectors, sets, candidates, "first")[:2].tolist() == [0.5, 0.5]
    assert score_pairs(vectors, sets, candidates, "max")[:2].tolist() == [0.5, 0.5]
    assert score_pairs(vectors, sets, candidates, "mean")[:2].tolist() == [0.375, 0.375]
    for pooling in ("first", "max", "mean"):
        assert np.isnan(score_pairs(vectors, sets, candidates, pooling)[2])  # type: ignore[arg-type]
