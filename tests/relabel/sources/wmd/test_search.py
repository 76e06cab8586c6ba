"""Contract: neighbours by wmd equal scoring every candidate and sorting by (-score, row), bit for bit, under every
pooling, with ties, captions without known words and few candidates, for any division into tasks and number of
threads.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from tests.relabel.sources.wmd.oracle import GLOVE, Encode, corpus_of, write_vectors

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.sources.finder import Search
from relabel.sources.wmd.relevance import WmdRelevance

WORDS = [f"w{i}" for i in range(40)]


def texts(count: int, seed: int = 0) -> list[str]:
    """Return captions of a few words; one in four is an earlier one, and some have no known word."""
    rng, captions = np.random.default_rng(seed), list[str]()
    for i in range(count):
        text = " ".join(rng.choice(WORDS, int(rng.integers(1, 8))))
        if i % 4 == 3:
            text = captions[int(rng.integers(len(captions)))]
        captions.append("unknown words" if i % 37 == 5 else text)
    return captions


@pytest.fixture
def relevance(tmp_path: Path, encode: Encode) -> WmdRelevance:
    write_vectors(tmp_path / "words.txt", WORDS)
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


def test_real_captions(mirror: Path, encode: Encode, coco_slice: list[str]) -> None:
    path = mirror / GLOVE
    if not path.exists():
        pytest.skip(f"the mirror has no {GLOVE}")
    relevance, _ = encode(corpus_of([t.replace(".", " ") for t in coco_slice], 5), vectors=str(path))
    for pooling in ("max", "set"):
        search = searches(relevance.corpus, 20)["images"]
        finder = relevance.finder(search, pooling, Runtime(threads=2))
        rows, scores = finder.find(None, range(len(search.queries)), lambda _: None)  # type: ignore[arg-type]
        check(relevance, search, pooling, rows, scores)
