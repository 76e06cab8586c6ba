"""Contract: the relevance of vector sources is the cosine of an explicit loop, pooled. A zero vector has
relevance 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.encodings import corpus_of

from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources import cosine as module
from relabel.sources.cosine import VectorRelevance

REDUCE: dict[Pooling, Any] = {"first": lambda x: x[0], "max": max, "mean": lambda x: sum(x) / len(x)}
SETS = [[3, 4, 5, 6, 7], [10], [11, 3], [39, 38, 37, 36, 35, 34, 33], [9, 10]]


def cosine(a: list[float], b: list[float]) -> float:
    """Compute the cosine of vectors of length 1 or 0, as the oracle."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


@pytest.mark.parametrize("pooling", list(REDUCE))
def test_pairs_and_block_equal_explicit_loops(pooling: Pooling, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 12)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[4] = 0  # a text without known words
    references, captions = References.of(SETS), np.array([0, 3, 4, 10, 39, 3], np.int32)
    listed = vectors.tolist()
    expected = [[REDUCE[pooling]([cosine(listed[r], listed[j]) for r in s]) for j in captions] for s in SETS]
    corpus = corpus_of([["a text"] * 40])
    subject = VectorRelevance(corpus, range(40), pooling, vectors, lambda text: vectors[0])
    pairs = subject.pairs(references, captions[: len(SETS)])
    np.testing.assert_allclose(pairs, [expected[i][i] for i in range(len(SETS))], atol=1e-12)
    assert pairs.dtype == np.float64
    for cells in (module._CELLS, 10):  # the second forces many small steps
        monkeypatch.setattr(module, "_CELLS", cells)
        np.testing.assert_allclose(subject.block(references, captions), expected, atol=1e-6)
