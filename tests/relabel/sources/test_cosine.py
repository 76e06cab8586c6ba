"""Contract: the relevance of vector sources is the cosine of an explicit loop, pooled. A zero vector has relevance 0,
and a row that is not encoded is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.sources import cosine as module
from relabel.sources.cosine import VectorRelevance

N, D = 40, 12
REDUCE: dict[Pooling, Any] = {"first": lambda x: x[0], "max": max, "mean": lambda x: sum(x) / len(x)}
SETS = [[3, 4, 5, 6, 7], [10], [11, 3], [39, 38, 37, 36, 35, 34, 33], [9, 10]]


def unit(count: int = N, seed: int = 0) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=(count, D))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[4] = 0  # a text without known words
    return vectors.astype(np.float32)


def relevance(vectors: NDArray[np.float32] | None = None, start: int = 0, pooling: Pooling = "max") -> VectorRelevance:
    vectors = unit() if vectors is None else vectors
    captions = [Caption(f"t:{i}", f"t:{i}", "test", f"text {i}") for i in range(start + len(vectors))]
    rows = range(start, start + len(vectors))
    return VectorRelevance(Corpus.from_captions(captions), rows, pooling, vectors, lambda text: unit()[int(text)])


def cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Compute the cosine of vectors of length 1 or 0, as the oracle."""
    total = 0.0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total += x * y
    return total


def rows(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("pooling", list(REDUCE))
def test_pairs_and_block_equal_explicit_loops(pooling: Pooling, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, captions = unit(), rows(0, 3, 4, 10, 39, 3)
    references = References.of(SETS)
    expected = [[REDUCE[pooling]([cosine(vectors[r], vectors[j]) for r in s]) for j in captions] for s in SETS]
    subject = relevance(vectors)
    np.testing.assert_allclose(subject.block(references, captions, pooling), expected, atol=1e-6)
    pairs = subject.pairs(references, captions[: len(SETS)], pooling)
    np.testing.assert_allclose(pairs, [expected[i][i] for i in range(len(SETS))], atol=1e-12)
    assert pairs.dtype == np.float64
    np.testing.assert_allclose(relevance(vectors, pooling=pooling).block(references, captions), expected, atol=1e-6)
    monkeypatch.setattr(module, "_CELLS", 10)  # forces many small steps
    np.testing.assert_allclose(subject.block(references, captions, pooling), expected, atol=1e-6)


def test_rows_need_not_start_at_zero_and_a_row_outside_is_an_error() -> None:
    part = relevance(unit()[20:], start=20)
    np.testing.assert_allclose(part.pairs(References.single(rows(25)), rows(30)), cosine(unit()[25], unit()[30]))
    for outside in (19, 0, 40):
        with pytest.raises(IndexError):
            part.pairs(References.single(rows(outside)), rows(30))
        with pytest.raises(IndexError):
            part.block(References.single(rows(25)), rows(30, outside))
        with pytest.raises(IndexError):
            part.query("1", rows(outside))
