"""Contract: neighbours behind a gate equal a sort of all candidates by `pairs`, bit for bit, for every value below the
gate, pooling and order. Too many pairs are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.encodings import find

from relabel import stages
from relabel.core.errors import UsageError
from relabel.corpus import References
from relabel.sources.bert_sts import pair_table
from relabel.sources.finder import Search
from relabel.stages import Project

MakeGated = Callable[..., Project]


def brute(relevance: Any, search: Search, pooling: Any) -> tuple[np.ndarray, np.ndarray]:
    """Score all candidates and sort by (-score, row), as the oracle."""
    rows, scores = [], []
    for q in range(len(search.queries)):
        copies = search.queries.take(np.full(len(search.candidates), q))
        score = relevance.pairs(copies, search.candidates, pooling)
        itself = search.candidates == search.exclude[q]
        order = np.lexsort((search.candidates, -score, itself))[: search.width]
        rows.append(search.candidates[order])
        scores.append(score[order])
    return np.array(rows), np.array(scores)


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_table, "_OWNERS", 7)
    monkeypatch.setattr(pair_table, "_PAIRS", 100)
    monkeypatch.setattr(pair_table, "_SAMPLE", 10)


@pytest.mark.parametrize(
    "params", [{}, {"below": "gate"}, {"orders": "one"}, {"gate": None}, {"threshold": 2.0}], ids=str
)
def test_lists_equal_a_sort(gated: MakeGated, small_tasks: None, tmp_path: Path, params: dict[str, Any]) -> None:
    project = gated(**params)
    relevance, n = stages.open_label(project, "fine", "all"), len(project.corpus)
    every = np.arange(n, dtype=np.int32)
    images = project.corpus.references(range(len(project.corpus.image_ids)))
    nobody = np.full(len(images), -1, np.int32)
    searches = [
        (Search(References.single(every), every, every, 6), "max"),
        (Search(References.single(every[:9]), every[:9], every[4:40], 50), "paired"),
        (Search(images, nobody, every, 11), "max"),
        (Search(images, nobody, every, 4), "mean"),
        (Search(images, nobody, every, n + 5), "mean"),
        (Search(images, nobody, every[5:6], 3), "max"),
    ]
    for i, (search, pooling) in enumerate(searches):
        rows, scores = find(relevance.finder(search, pooling, project.runtime), tmp_path / f"work{i}")
        want_rows, want_scores = brute(relevance, search, pooling)
        np.testing.assert_array_equal(scores, want_scores)
        np.testing.assert_array_equal(rows, want_rows)


def test_failed_rows_come_last_and_have_no_neighbours(gated: MakeGated, small_tasks: None, tmp_path: Path) -> None:
    project = gated(threshold=0.3)
    relevance: Any = stages.open_label(project, "fine", "all")
    coarse = replace(relevance.coarse, vectors=relevance.coarse.vectors.copy(), failed=np.array([3, 8], np.int32))
    coarse.vectors[[3, 8]] = np.nan
    broken = replace(relevance, coarse=coarse, failed=coarse.failed)
    every = np.arange(len(project.corpus), dtype=np.int32)
    search = Search(References.single(every), every, every, len(every))
    rows, scores = find(broken.finder(search, "max", project.runtime), tmp_path / "work")
    want_rows, want_scores = brute(broken, search, "max")
    fine = np.setdiff1d(every, [3, 8])
    np.testing.assert_array_equal(rows[fine], want_rows[fine])
    np.testing.assert_array_equal(scores[fine], want_scores[fine])
    assert np.isnan(scores[[3, 8]]).all()
    assert (rows[[3, 8]] != np.array([[3], [8]])).all()


def test_too_many_pairs_are_refused_with_an_estimate(gated: MakeGated) -> None:
    project = gated(max_pairs=5)
    with pytest.raises(UsageError, match=r"about \d+ pairs to refine \(near >= 0\.5\); max_pairs is 5"):
        stages.neighbours(project, "fine").run()
