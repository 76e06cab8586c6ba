"""Contract: the relevance of wmd is linear in word mover's distance and pooled as in the papers; a caption without a
known word changes no set. Distances of captions equal those of another exact solver over all words, to 1e-9, with the
same bits for both orders of a pair. `transport` returns the least cost of a transportation problem, equal to a linear
program, for all supplies and demands of equal sums and for both assignments of the sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from tests.relabel.sources.encodings import Vectors, corpus_of, encode, in_images, write_vectors

from relabel.corpus import References
from relabel.sources.wmd import STOP_WORDS, Wmd, WmdParams
from relabel.sources.wmd.distance import distances, transport
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors

WORDS = ["dog", "dogs", "runs", "cat", "sleeps", "sofa", "two", "the", "red", "bus"]
TEXTS = [
    *("the dog runs", "two dogs dogs sleeps sofa", "the cat sleeps on a sofa"),
    *("qwx zzz", "a red bus", "The Dog runs the unseen", "on the of", "cat cat dog"),
]
"""Two captions have no known word: one of them stop words alone."""


def encoded(texts: Sequence[str], an_image: int, folder: Path, vectors: Path) -> Any:
    source = Wmd(WmdParams(vectors=str(vectors), tokenizer="lower_split"))
    return encode(source, corpus_of(in_images(texts, an_image)), folder / "encoding")


def by_the_book(left: Sequence[str], right: Sequence[str], vectors: Vectors) -> float:
    """Compute the word mover's distance of two lists of words by an independent solver, without unknown words."""
    a, b = (Counter(w for w in side if w in vectors) for side in (left, right))
    if not a or not b:
        return float("inf")
    cost = np.array([[np.sqrt(((vectors[x] - vectors[y]) ** 2).sum()) for y in b] for x in a])
    weights = [np.array([c[w] / c.total() for w in c]) for c in (a, b)]
    return linear_program(weights[0], weights[1], cost)


def linear_program(supply: NDArray[Any], demand: NDArray[Any], cost: NDArray[np.float64]) -> float:
    """Return the least cost of a transportation problem."""
    m, n = cost.shape
    sums = [*(np.eye(m)[i].repeat(n) for i in range(m)), *(np.tile(np.eye(n)[j], m) for j in range(n))]
    return float(linprog(cost.reshape(-1), A_eq=np.array(sums), b_eq=np.concatenate([supply, demand])).fun)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Any, NDArray[np.float64]]:
    """Return the relevance of the small captions, and all distances by the oracle."""
    vectors = write_vectors(tmp_path / "words.txt", WORDS)
    bags = [[w for w in text.lower().split() if w not in ("the", "on", "a", "of")] for text in TEXTS]
    apart = np.array([[by_the_book(a, b, vectors) for b in bags] for a in bags])
    relevance, manifest = encoded(TEXTS, 4, tmp_path, tmp_path / "words.txt")
    reach = 2 * max(np.linalg.norm(vector) for word, vector in vectors.items() if word != "the")
    assert relevance.reach == manifest.metadata["reach"] == pytest.approx(reach)
    return relevance, apart


def test_relevance_is_linear_in_the_pooled_distance(small: tuple[Any, NDArray[np.float64]]) -> None:
    relevance, apart = small
    sets = References.of([[0, 1, 2, 3], [4, 5], [3, 6]])
    captions = np.arange(len(TEXTS), dtype=np.int32)
    for pooling in ("first", "max", "mean", "set"):
        block = relevance.block(sets, captions, pooling)
        for i in range(len(sets)):
            for c in captions:
                d = [apart[x, c] for x in sets[i] if np.isfinite(apart[x, c])]
                least, mean = (min(d), sum(d) / len(d)) if d else (np.inf, np.inf)
                size = len(sets[i])
                distance = {"first": apart[sets[i][0], c], "max": least, "mean": mean, "set": mean * size + least}
                terms = size + 1 if pooling == "set" else 1
                one = relevance.distances(sets.take(np.array([i])), References.single(captions[c : c + 1]), pooling)[0]
                assert one == pytest.approx(distance[pooling], abs=1e-9)
                assert block[i, c] == pytest.approx(max(0.0, 1 - one / (relevance.reach * terms)), abs=1e-12)
    assert (relevance.block(References.single(captions), captions, "max").diagonal() == [1, 1, 1, 0, 1, 1, 0, 1]).all()


def test_sets_of_captions_by_the_papers_sum(small: tuple[Any, NDArray[np.float64]]) -> None:
    relevance, apart = small
    sets = References.of([[0, 1, 2], [4, 5, 7, 2], [7], [0, 5], [3]])
    left, right = (sets.take(i.reshape(-1)) for i in np.indices((5, 5)))
    set_distances = relevance.distances(left, right, "set").reshape(5, 5)
    worth = relevance.set_pairs(left, right, "set").reshape(5, 5)
    for i in range(5):
        for j in range(5):
            x, y = sets[i], sets[j]
            total = sum(min(apart[a, b] for b in y) for a in x) + sum(min(apart[a, b] for a in x) for b in y)
            assert set_distances[i, j] == pytest.approx(total, abs=1e-9)
            assert worth[i, j] == pytest.approx(max(0.0, 1 - total / relevance.reach / (len(x) + len(y))), abs=1e-9)
    np.testing.assert_array_equal(set_distances, set_distances.T)
    assert (set_distances.diagonal()[:4] == 0).all()
    # A set and one caption: the same as a reference set and a caption.
    single = References.single(np.array([7] * 5, np.int32))
    np.testing.assert_array_equal(relevance.set_pairs(sets, single, "set"), relevance.pairs(sets, single.rows, "set"))
    for pooling, of_all in (("max", np.min), ("mean", np.mean)):
        cells = [of_all(apart[np.ix_(sets[i], sets[j])]) for i, j in pairwise(range(4))]
        pooled = relevance.distances(sets.take(np.arange(3)), sets.take(np.arange(1, 4)), pooling)
        np.testing.assert_allclose(pooled, cells, atol=1e-9)


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_real_captions_against_another_solver(mirror: Path, tmp_path: Path, coco_slice: list[str], count: int) -> None:
    path = mirror / "vectors/glove.6B.100d.captions-vocabulary.txt.gz"
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    texts = [" ".join(t.lower().replace(".", " ").replace(",", " ").split()) for t in coco_slice]
    relevance, _ = encoded(texts, 5, tmp_path, path)
    assert relevance.vectors.shape[1] == 100
    tokens = [[w for w in t.split() if w not in STOP_WORDS] for t in texts]
    read = read_word_vectors(WordVectorsFile.at(path), {w for t in tokens for w in t})
    words = {w: read.vectors[i].astype(np.float64) for w, i in read.index.items()}
    pairs = np.random.default_rng(1).integers(0, len(texts), (count, 2))
    pairs[:20, 1] = pairs[:20, 0]
    left, right = (References.single(side) for side in pairs.T)
    computed = distances(relevance.bags, relevance.wide, left, right)
    expected = [by_the_book(tokens[a], tokens[b], words) for a, b in pairs.tolist()]
    np.testing.assert_allclose(computed, expected, rtol=0, atol=1e-9)
    assert (computed[:20] == 0.0).all()
    np.testing.assert_array_equal(computed, distances(relevance.bags, relevance.wide, right, left))


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
