"""Contract: neighbours behind a gate equal a sort of all candidates by `pairs`, bit for bit, for every pooling
and order, also where captions failed or have other vectors than their text. Each pair of texts is scored
once. Too many pairs are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.encodings import assert_same, best_by_pairs, find

from relabel import stages
from relabel.corpus import References
from relabel.sources.bert_sts import search as module
from relabel.sources.finder import Search
from relabel.stages import Session, open_corpus

MakeGated = Callable[..., Session]


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_SAMPLE", 10), ("_PAIRS", 50), ("_QUERIES", 7), ("_SLAB", 5)):
        monkeypatch.setattr(module, name, size)


@pytest.mark.parametrize(
    ("params", "failed"),
    [
        ({}, [3, 8]),
        *(pytest.param(p, [], marks=pytest.mark.slow) for p in ({"gate": None}, {"threshold": 2.0})),
    ],
    ids=str,
)
def test_lists_equal_a_sort(gated: MakeGated, tmp_path: Path, params: dict[str, Any], failed: list[int]) -> None:
    session = gated(**params)
    relevance: Any = stages.open_label(session, "fine", "all")
    n = len(open_corpus(session))
    if failed:
        # Captions of one text get other vectors as well.
        vectors = relevance.coarse.vectors.copy()
        vectors[::3] = np.roll(vectors, 1, axis=0)[::3]
        vectors[failed] = np.nan
        rows = np.array(failed, np.int32)
        relevance = replace(relevance, coarse=replace(relevance.coarse, vectors=vectors, failed=rows), failed=rows)
    every = np.arange(n, dtype=np.int32)
    corpus = open_corpus(session)
    images = corpus.references(range(len(corpus.image_ids)))
    nobody = np.full(len(images), -1, np.int32)
    searches = [
        (Search(References.single(every), every, every, 6), "max"),
        (Search(References.single(every), every, every, n), "max"),
        (Search(References.single(every[:9]), every[:9], every[4:40], 50), "first"),
        (Search(images, nobody, every, 11), "max"),
        (Search(images, nobody, every, 4), "mean"),
        (Search(images, nobody, every, n + 5), "mean"),
        (Search(images, nobody, every[5:6], 3), "max"),
    ]
    for i, (search, pooling) in enumerate(searches):
        found = find(relevance.finder(search, pooling, session.runtime), tmp_path / f"work{i}")
        assert_same(found, best_by_pairs(relevance, search, pooling))
