"""Contract: distances of captions equal those of another exact solver over all words, to 1e-9. They have the same bits
for both orders of a pair and any number of threads. `transport` returns the least cost of a transportation problem,
equal to a linear program, for all supplies and demands of equal sums and for both assignments of the sides, and to POT
(if installed) for many words.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.relabel.sources.wmd.oracle import GLOVE, Encode, by_the_book, corpus_of, linear_program

from relabel.corpus import Corpus, References
from relabel.sources.wmd import ENGLISH
from relabel.sources.wmd.distance import Bags, distances, transport
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors


def draw_bags(bags: int = 60, words: int = 12, seed: int = 0) -> tuple[Bags, np.ndarray]:
    """Return random bags of up to 8 words with repeats, and an empty one."""
    rng = np.random.default_rng(seed)
    lists = [np.unique(rng.integers(0, words, rng.integers(1, 9))) for _ in range(bags - 1)] + [np.empty(0, np.int64)]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    ids = np.concatenate(lists).astype(np.int32)
    random_bags = Bags.of(indptr, ids, rng.integers(1, 4, len(ids)))
    return random_bags, rng.normal(size=(words, 13)).astype(np.float32).astype(np.float64)


def all_pairs(bags: Bags) -> tuple[References, References]:
    count = len(bags.totals)
    numbers = np.arange(count, dtype=np.int32)
    return References.single(np.repeat(numbers, count)), References.single(np.tile(numbers, count))


def test_bits_depend_on_the_pair_only() -> None:
    bags, vectors = draw_bags(200)
    left, right = all_pairs(bags)
    single = distances(bags, vectors, left, right)
    np.testing.assert_array_equal(single, distances(bags, vectors, left, right, threads=3))
    np.testing.assert_array_equal(single, distances(bags, vectors, right, left))
    sample = np.random.default_rng(0).permutation(len(left))[:500]
    np.testing.assert_array_equal(single[sample], distances(bags, vectors, left.take(sample), right.take(sample)))


def test_real_captions_against_another_solver(mirror: Path, encode: Encode, coco_slice: list[str]) -> None:
    path = mirror / GLOVE
    if not path.exists():
        pytest.skip(f"the mirror has no {GLOVE}")
    texts = [" ".join(t.lower().replace(".", " ").replace(",", " ").split()) for t in coco_slice]
    corpus: Corpus = corpus_of(texts, 5)
    relevance, _ = encode(corpus, vectors=str(path))
    assert relevance.vectors.shape[1] == 100
    tokens = [[w for w in t.split() if w not in ENGLISH] for t in corpus.texts]
    read = read_word_vectors(WordVectorsFile.at(path), {w for t in tokens for w in t})
    words = {w: read.vectors[i].astype(np.float64) for w, i in read.index.items()}
    pairs = np.random.default_rng(1).integers(0, len(texts), (3000, 2))
    pairs[:20, 1] = pairs[:20, 0]
    computed = distances(relevance.bags, relevance.wide, *(References.single(side) for side in pairs.T))
    expected = [by_the_book(tokens[a], tokens[b], words) for a, b in pairs.tolist()]
    np.testing.assert_allclose(computed, expected, rtol=0, atol=1e-9)
    assert (computed[:20] == 0.0).all()


Problem = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw bags of 1 to 7 words with counts as supplies and demands; costs with many ties, or none."""
    left = np.array(draw(st.lists(st.integers(1, 4), min_size=1, max_size=7)))
    right = np.array(draw(st.lists(st.integers(1, 4), min_size=1, max_size=7)))
    tied = st.integers(0, 3).map(float)
    cost = draw(st.one_of(st.just(tied), st.just(st.floats(0, 100, allow_subnormal=False))))
    cells = draw(st.lists(cost, min_size=left.size * right.size, max_size=left.size * right.size))
    return np.array(cells).reshape(left.size, right.size), left * right.sum(), right * left.sum()


def solved(problem: Problem) -> float:
    cost, supply, demand = problem
    return transport(np.ascontiguousarray(cost), supply.copy(), demand.copy())


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_cost_equals_a_linear_program(problem: Problem) -> None:
    cost, supply, demand = problem
    expected = linear_program(supply, demand, cost)
    assert solved(problem) == pytest.approx(expected, rel=1e-9, abs=1e-7)
    assert solved((np.ascontiguousarray(cost.T), demand, supply)) == pytest.approx(expected, rel=1e-9, abs=1e-7)


def test_bags_of_more_words_than_any_caption_has() -> None:
    ot, rng = pytest.importorskip("ot"), np.random.default_rng(0)
    for m, n in ((60, 45), (1, 80), (33, 1), (50, 50)):
        left, right = rng.integers(1, 9, m), rng.integers(1, 9, n)
        problem = rng.random((m, n)), left * right.sum(), right * left.sum()
        mass = float(problem[1].sum())
        expected = ot.emd2(problem[1] / mass, problem[2] / mass, problem[0])
        assert solved(problem) / mass == pytest.approx(expected, abs=1e-9)
