"""Vectors with ties and zeros, and the reference implementation of the search: score all, sort, truncate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.topk.exact_scores import score_pairs
from relabel.topk.merge import TopK


def search_by_sorting(
    vectors: NDArray[np.float32], sets: References, positions: NDArray[np.int64], keep: int, pooling: Pooling
) -> TopK:
    """Score every candidate of every set by the exact kernel and sort by (-score, number)."""
    lists = TopK.empty(len(sets), keep)
    for q in range(len(sets)):
        scores = score_pairs(vectors, References.of([sets[q]] * len(positions)), positions, pooling)
        order = np.lexsort((np.arange(len(positions)), -scores))[:keep]
        lists.numbers[q, : len(order)], lists.scores[q, : len(order)] = order, scores[order]
        lists.sizes[q] = len(order)
    return lists


def draw(n: int, width: int, copies: int = 1, zeros: float = 0.0) -> NDArray[np.float32]:
    """Draw n directions, each about `copies` times, and a share of zero vectors."""
    rng = np.random.default_rng(n + width)
    vectors = rng.standard_normal((n, width))[rng.integers(0, max(1, n // copies), n)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[rng.random(n) < zeros] = 0
    return vectors.astype(np.float32)


def assert_equal(ours: TopK, theirs: TopK) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
