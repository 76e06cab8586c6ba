"""Contract: the relevance of wmd is linear in word mover's distance and pooled as in the papers. Stop words and words
without a vector are excluded and counted. A caption without a known word has relevance 0 and changes no set.

Distances of captions equal those of another exact solver over all words, to 1e-9. They have the same bits for both
orders of a pair and any number of threads. `transport` returns the least cost of a transportation problem, equal to a
linear program, for all supplies and demands of equal sums and for both assignments of the sides.

Neighbours equal scoring every candidate and sorting by (-score, row), bit for bit, under every pooling, with ties,
captions without known words and few candidates, for any division into tasks and number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.relabel.sources.wmd.oracle import (
    GLOVE,
    Encode,
    by_the_book,
    corpus_of,
    encode_in,
    linear_program,
    write_vectors,
)

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.sources.base import Encoding
from relabel.sources.finder import Search
from relabel.sources.wmd import ENGLISH, Wmd, WmdParams
from relabel.sources.wmd.distance import Bags, distances, transport
from relabel.sources.wmd.relevance import WmdRelevance
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors

WORDS = ["dog", "dogs", "runs", "cat", "sleeps", "sofa", "two", "the", "red", "bus"]
TEXTS = [
    "the dog runs",
    "two dogs dogs sleeps sofa",
    "the cat sleeps on a sofa",
    "qwx zzz",  # no known word
    "a red bus",
    "The Dog runs the unseen",
    "on the of",  # only stop words
    "cat cat dog",
]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    write_vectors(tmp_path / "words.txt", WORDS)
    return tmp_path / "words.txt"


def bag(text: str) -> list[str]:
    return [w for w in text.lower().split() if w not in ("the", "on", "a", "of")]


def expected_distances(vectors: Path) -> np.ndarray:
    vector_of = write_vectors(vectors, WORDS)
    return np.array([[by_the_book(bag(a), bag(b), vector_of) for b in TEXTS] for a in TEXTS])


def test_relevance_is_linear_in_the_pooled_distance(tmp_path: Path, vectors: Path) -> None:
    corpus, apart = corpus_of(TEXTS, 4), expected_distances(vectors)
    relevance, manifest = encode_in(tmp_path, corpus, vectors=str(vectors))
    vector_of = write_vectors(vectors, WORDS)
    reach = 2 * max(np.linalg.norm(vector_of[w]) for w in WORDS if w != "the")
    assert relevance.reach == manifest.metadata["reach"] == pytest.approx(reach)
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
                assert block[i, c] == pytest.approx(max(0.0, 1 - one / (reach * terms)), abs=1e-12)
        each = relevance.pairs(sets.take(np.repeat(np.arange(3), 8)), np.tile(captions, 3), pooling)
        np.testing.assert_array_equal(block.reshape(-1), each)
    assert (relevance.block(References.single(captions), captions, "max").diagonal() == [1, 1, 1, 0, 1, 1, 0, 1]).all()


def test_sets_of_captions_by_the_papers_sum(tmp_path: Path, vectors: Path) -> None:
    corpus, apart = corpus_of(TEXTS, 4), expected_distances(vectors)
    relevance, _ = encode_in(tmp_path, corpus, vectors=str(vectors))
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


def test_a_caption_without_a_known_word_has_relevance_0_and_changes_no_set(tmp_path: Path, vectors: Path) -> None:
    relevance, manifest = encode_in(tmp_path, corpus_of(TEXTS, 4), vectors=str(vectors))
    rows = np.arange(8, dtype=np.int32)
    for row in (3, 6):
        every = References.single(np.full(8, row, np.int32))
        assert not relevance.pairs(every, rows).any()
        assert np.isinf(relevance.distances(every, References.single(rows))).all()
    with_it, without = References.of([[0, 1, 3]]), References.of([[0, 1]])
    for pooling in ("max", "mean"):
        assert relevance.pairs(with_it, rows[7:], pooling) == relevance.pairs(without, rows[7:], pooling)
    metadata = manifest.metadata
    assert metadata["without_vector"] == 2
    assert metadata["warnings"][0] == "2 captions have no known word: their relevance is 0"
    left_out = sum(len(text.split()) - len(bag(text)) for text in TEXTS)
    assert metadata["stop_words"] == {"list": "english", "tokens": left_out, "words": 4}
    assert metadata["oov"]["most_frequent"] == [["qwx", 1], ["zzz", 1], ["unseen", 1]]
    assert metadata["oov"]["of_tokens"] == sum(len(bag(t)) for t in TEXTS)
    assert metadata["vocabulary"] == 9


def test_a_new_text_scores_as_a_caption(tmp_path: Path, vectors: Path) -> None:
    corpus = corpus_of(TEXTS, 4)
    part, manifest = encode_in(tmp_path, corpus, range(4), vectors=str(vectors))
    vector_of, rows = write_vectors(vectors, WORDS), np.arange(4, dtype=np.int32)
    for text in TEXTS:  # `bus` and other words do not occur in the encoded rows
        d = np.array([by_the_book(bag(text), bag(t), vector_of) for t in TEXTS[:4]])
        np.testing.assert_allclose(part.query(text, rows), np.maximum(0, 1 - d / part.reach), atol=1e-9)
    assert not part.query("qwx \udc80", rows).any()
    with pytest.raises(IndexError, match="encoded rows 0 to 4"):
        part.pairs(References.single(np.array([0], np.int32)), np.array([5], np.int32))
    source = Wmd(WmdParams(vectors=str(vectors), tokenizer="lower_split"))
    write_vectors(vectors, WORDS, seed=1)
    reopened = source.open(Encoding(corpus, tmp_path / "encoding", manifest, Runtime(threads=1)))
    with pytest.raises(CheckError, match="not the word vectors that the encoding was made with"):
        reopened.query("a red bus", rows)


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


SOME_WORDS = [f"w{i}" for i in range(40)]


def texts(count: int, seed: int = 0) -> list[str]:
    """Return captions of a few words; one in four is an earlier one, and some have no known word."""
    rng, captions = np.random.default_rng(seed), list[str]()
    for i in range(count):
        text = " ".join(rng.choice(SOME_WORDS, int(rng.integers(1, 8))))
        if i % 4 == 3:
            text = captions[int(rng.integers(len(captions)))]
        captions.append("unknown words" if i % 37 == 5 else text)
    return captions


@pytest.fixture
def relevance(tmp_path: Path, encode: Encode) -> WmdRelevance:
    write_vectors(tmp_path / "words.txt", SOME_WORDS)
    return encode(corpus_of(texts(240), 4), vectors=str(tmp_path / "words.txt"))[0]


def searches(corpus: Corpus, k: int) -> dict[str, Search]:
    rows = np.arange(len(corpus), dtype=np.int32)
    images = corpus.references(range(len(corpus.image_ids)))
    nothing = np.full(len(images), -1, np.int32)
    candidates = rows[rows % 3 == 1]
    return {
        "captions": Search(References.single(rows), rows, rows, k),
        "images": Search(images, nothing, rows, k),
        "some of them": Search(References.single(rows[10:60]), rows[10:60], candidates, k),
    }


def check(relevance: WmdRelevance, search: Search, pooling: Pooling, rows: np.ndarray, scores: np.ndarray) -> None:
    for number in range(len(search.queries)):
        copies = search.queries.take(np.full(len(search.candidates), number))
        expected = relevance.pairs(copies, search.candidates, pooling)
        itself = search.candidates == search.exclude[number]
        order = np.lexsort((search.candidates, -expected, itself))[: search.width]
        np.testing.assert_array_equal(rows[number], search.candidates[order])
        np.testing.assert_array_equal(scores[number], expected[order])


@pytest.mark.parametrize("pooling", get_args(Pooling))
@pytest.mark.parametrize("k", [1, 7, 500])
def test_neighbours_equal_a_sort_of_all_candidates(relevance: WmdRelevance, pooling: Pooling, k: int) -> None:
    for search in searches(relevance.corpus, k).values():
        progress: list[int] = []
        finder = relevance.finder(search, pooling, Runtime(threads=1))
        rows, scores = finder.find(None, range(len(search.queries)), progress.append)  # type: ignore[arg-type]
        assert rows.shape == (len(search.queries), search.width)
        assert sum(progress) == len(search.queries)
        check(relevance, search, pooling, rows, scores)


def test_threads_and_tasks_change_nothing(relevance: WmdRelevance) -> None:
    search = searches(relevance.corpus, 9)["images"]
    every = range(len(search.queries))

    complete = relevance.finder(search, "set", Runtime(threads=1)).find(None, every, lambda _: None)  # type: ignore[arg-type]
    for runtime in (Runtime(threads=3), Runtime(threads=1)):
        finder = relevance.finder(search, "set", runtime)
        for part in (every[40:], every[:3], every[3:40]):
            rows, scores = finder.find(None, part, lambda _: None)  # type: ignore[arg-type]
            np.testing.assert_array_equal(rows, complete[0][part.start : part.stop])
            np.testing.assert_array_equal(scores, complete[1][part.start : part.stop])
