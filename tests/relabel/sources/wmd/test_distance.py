"""Contract of distances: on captions, what another exact solver gives on all words, to 1e-9; a metric on bags; the same
bits whichever caption comes first, and for any number of threads."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.wmd.oracle import GLOVE, Encode, by_the_book, corpus_of

from relabel.corpus import Corpus
from relabel.sources.wmd.distance import Bags, distances
from relabel.sources.wmd.stop_words import ENGLISH
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors


def drawn(bags: int = 60, words: int = 12, seed: int = 0) -> tuple[Bags, np.ndarray]:
    """Random bags of up to 8 words, repeats among them, and one that is empty."""
    rng = np.random.default_rng(seed)
    lists = [np.unique(rng.integers(0, words, rng.integers(1, 9))) for _ in range(bags - 1)] + [np.empty(0, np.int64)]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    ids = np.concatenate(lists).astype(np.int32)
    made = Bags.of(indptr, ids, rng.integers(1, 4, len(ids)))
    return made, rng.normal(size=(words, 13)).astype(np.float32).astype(np.float64)


def all_pairs(bags: Bags) -> tuple[np.ndarray, np.ndarray]:
    count = len(bags.totals)
    return np.repeat(np.arange(count), count), np.tile(np.arange(count), count)


def test_it_is_a_metric_on_bags() -> None:
    bags, vectors = drawn()
    left, right = all_pairs(bags)
    count = len(bags.totals)
    found = distances(bags, vectors, left, right).reshape(count, count)
    np.testing.assert_array_equal(found, found.T)
    assert np.isinf(found[-1]).all()  # the empty bag, to itself too
    whole = found[:-1, :-1]
    for i in range(count - 1):
        for j in range(count - 1):
            assert (whole[i, j] == 0.0) == (shares(bags, i) == shares(bags, j))
        assert (whole <= whole[i][:, None] + whole[i][None] + 1e-12).all()


def shares(bags: Bags, number: int) -> dict[int, Fraction]:
    """Share of each word in a bag."""
    some = range(bags.indptr[number], bags.indptr[number + 1])
    return {int(bags.words[e]): Fraction(int(bags.counts[e]), int(bags.totals[number])) for e in some}


def test_bits_depend_on_the_pair_alone() -> None:
    bags, vectors = drawn(200)
    left, right = all_pairs(bags)
    one = distances(bags, vectors, left, right)
    np.testing.assert_array_equal(one, distances(bags, vectors, left, right, threads=3))
    np.testing.assert_array_equal(one, distances(bags, vectors, right, left))
    some = np.random.default_rng(0).permutation(len(left))[:500]
    np.testing.assert_array_equal(one[some], distances(bags, vectors, left[some], right[some]))


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
    found = distances(relevance.bags, relevance.wide, pairs[:, 0], pairs[:, 1])
    expected = [by_the_book(tokens[a], tokens[b], words) for a, b in pairs.tolist()]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert (found[:20] == 0.0).all()
