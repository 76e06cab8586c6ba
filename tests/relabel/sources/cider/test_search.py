"""Contract: neighbours by cider equal a full sort of `Relevance.pairs`, bit for bit.

This holds for every pooling, k, variant, memory limit, number of threads, division into tasks and share of the sums
that is omitted at first; with ties, duplicates, captions without words, and fewer relevant captions than k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources import finder as finders
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.cider.search import CiderFinder
from relabel.sources.finder import Search
from relabel.store.workdir import Work

Open = Callable[..., CiderRelevance]
POOLINGS: list[Pooling] = ["set", "mean", "max", "first"]
CAPTIONS = st.lists(st.sampled_from("abcde"), max_size=8).map(" ".join)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the memory limit until even a small corpus is searched in slabs."""
    monkeypatch.setattr(finders, "_SMALLEST", 7)


def captions_of(relevance: CiderRelevance) -> Search:
    rows = np.arange(relevance.rows.start, relevance.rows.stop, dtype=np.int32)
    return Search(References.single(rows), rows, rows, 5)


def images_of(relevance: CiderRelevance) -> Search:
    images = range(
        int(relevance.corpus.image[relevance.rows.start]), int(relevance.corpus.image[relevance.rows.stop - 1]) + 1
    )
    rows = np.arange(relevance.rows.start, relevance.rows.stop, dtype=np.int32)
    return Search(relevance.corpus.references(images), np.full(len(images), -1, np.int32), rows, 5)


def find_all(
    relevance: CiderRelevance, search: Search, pooling: Pooling | None = None, **runtime: Any
) -> tuple[Any, Any]:
    finder = relevance.finder(search, pooling, Runtime(**({"threads": 1} | runtime)))
    return finder.find(Work(Path()), range(len(search.queries)), lambda _: None)


def full_sort(relevance: CiderRelevance, search: Search, pooling: Pooling | None = None) -> tuple[Rows, Scores]:
    rows = np.empty((len(search.queries), search.width), np.int32)
    scores = np.empty(rows.shape)
    for m in range(len(search.queries)):
        candidates = search.candidates[search.candidates != search.exclude[m]]
        worth = relevance.pairs(search.queries.take(np.full(len(candidates), m)), candidates, pooling)
        order = np.lexsort((candidates, -worth))[: search.width]
        rows[m], scores[m] = candidates[order], worth[order]
    return rows, scores


def assert_same(ours: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    assert np.array_equal(ours[1], expected[1])
    assert np.array_equal(ours[0], expected[0])
    assert ours[0].dtype == np.int32
    assert ours[1].dtype == np.float64


def real_corpus(coco: Corpus, tiny_corpus: Callable[..., Corpus], images: int) -> list[list[str]]:
    """Return a corpus of real captions in which every third image occurs twice."""
    chosen = list(coco.images(["test"]))[:images]
    texts = [[coco.texts[r].lower().rstrip(". ") for r in coco.references([m])[0]] for m in chosen]
    return texts + texts[::3]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("params", [{}, {"variant": "cider"}, {"sigma": 1.5, "n": 2, "tokenizer": "lower_split"}])
def test_equals_a_full_sort_on_real_captions(
    opened: Open, coco: Corpus, tiny_corpus: Callable[..., Corpus], params: dict[str, Any], pooling: Pooling
) -> None:
    relevance = opened(tiny_corpus(real_corpus(coco, tiny_corpus, 90)), **params)
    for search in (captions_of(relevance), images_of(relevance)):
        chosen = np.arange(0, len(search.queries), 9)
        for k in (1, 20, 250):
            subset = Search(search.queries.take(chosen), search.exclude[chosen], search.candidates, k)
            expected = full_sort(relevance, subset, pooling)
            assert_same(find_all(relevance, subset, pooling), expected)
            assert_same(find_all(relevance, subset, pooling, memory=0, threads=2), expected)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    images=st.lists(st.lists(CAPTIONS, min_size=1, max_size=4), min_size=1, max_size=9),
    variant=st.sampled_from(["cider_d", "cider"]),
    pooling=st.sampled_from(POOLINGS),
    k=st.integers(0, 40),
    memory=st.sampled_from([0, 1 << 30]),
    leave_out=st.sampled_from([0.0, 0.3, 0.6, 0.99]),
    of_images=st.booleans(),
    data=st.data(),
)
def test_equals_a_full_sort_on_any_small_corpus(
    opened: Open,
    images: list[list[str]],
    variant: str,
    pooling: Pooling,
    k: int,
    memory: int,
    leave_out: float,
    of_images: bool,
    data: st.DataObject,
) -> None:
    relevance = opened(images, variant=variant)
    search = images_of(relevance) if of_images else captions_of(relevance)
    mask = data.draw(st.lists(st.booleans(), min_size=len(search.candidates), max_size=len(search.candidates)))
    search = replace(search, k=k, candidates=search.candidates[np.array(mask, bool)])
    if len(search.candidates) > search.width and len(np.setdiff1d(search.exclude, search.candidates)):
        search = replace(search, exclude=np.full(len(search.exclude), -1, np.int32))  # one width for all lists
    runtime = Runtime(threads=1, memory=memory)
    ours = CiderFinder(relevance, search, pooling, runtime, leave_out)
    expected = full_sort(relevance, search, pooling)
    assert_same(ours.find(Work(Path()), range(len(search.queries)), lambda _: None), expected)
