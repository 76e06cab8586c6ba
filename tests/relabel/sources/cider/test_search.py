"""Contract: neighbours by cider equal a full sort of `Relevance.pairs`, bit for bit, for any small corpus and share of
the sums that is omitted at first; with ties, captions without words, and fewer relevant captions than k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.relabel.sources.encodings import assert_same, best_by_pairs

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources import finder as finders
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.cider.search import CiderFinder
from relabel.sources.finder import Search
from relabel.store.workdir import Work

CAPTIONS = st.lists(st.sampled_from("abcde"), max_size=8).map(" ".join)
POOLINGS: list[Pooling] = ["set", "mean", "max", "first"]


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
    opened: Callable[..., CiderRelevance],
    monkeypatch: pytest.MonkeyPatch,
    images: list[list[str]],
    variant: str,
    pooling: Pooling,
    k: int,
    memory: int,
    leave_out: float,
    of_images: bool,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(finders, "_SMALLEST", 7)  # even a small corpus is searched in slabs
    relevance = opened(images, variant=variant)
    rows = np.arange(len(relevance.corpus), dtype=np.int32)
    candidates = rows[data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))]
    queries, exclude = relevance.corpus.references(range(len(images))), np.full(len(images), -1, np.int32)
    if not of_images:
        queries, exclude = References.single(rows), rows
    search = Search(queries, exclude, candidates, k)
    if not of_images and search.width < len(candidates) < len(rows):
        search = replace(search, exclude=np.full(len(rows), -1, np.int32))  # one width for all lists
    finder = CiderFinder(relevance, search, pooling, Runtime(threads=1, memory=memory), leave_out)
    found = finder.find(Work(Path()), range(len(queries)), lambda _: None)
    assert_same(found, best_by_pairs(relevance, search, pooling))
