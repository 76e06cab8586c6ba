"""Contract: the nearest captions of a page equal a sort of all its pairs by (-score, row), searched or from a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relabel import stages
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.export.base import ArtefactRef
from relabel.page.captions import NEAREST, choose_captions, read_table, search
from relabel.stages import Session, open_corpus
from relabel.store.workdir import Work


@pytest.mark.parametrize(("label", "most"), [("cbow", None), ("cider", None), ("cbow", 60)])
def test_a_search_equals_a_sort_of_all_pairs(
    label: str, most: int | None, small_project: Session, tmp_path: Path
) -> None:
    corpus = open_corpus(small_project)
    captions = choose_captions(corpus, range(len(corpus)), maximum=most or len(corpus))
    relevance, count = stages.open_label(small_project, label, "all"), len(captions)
    nearest = search(relevance, captions, label, Runtime(threads=1), Work(tmp_path))
    left, right = (captions.rows[numbers.ravel()] for numbers in np.mgrid[:count, :count])
    scores = relevance.pairs(References.single(left), right, "first").reshape(count, count)
    np.fill_diagonal(scores, -np.inf)  # no caption is its own neighbour
    order = np.argsort(-scores, axis=1, kind="stable")[:, :NEAREST]
    assert nearest.reference.tolist() == np.repeat(np.arange(count), NEAREST).tolist()
    assert nearest.candidate.tolist() == order.ravel().tolist()
    expected = np.take_along_axis(scores, order, axis=1).ravel()
    assert nearest.score == pytest.approx(expected, abs=1.1e-3)  # searches return float32, and pages three decimals


@pytest.mark.parametrize("label", ["cbow", "cider"])
@pytest.mark.parametrize(("most", "nearest"), [(1_000, 3), (200, 1), (200, 8)])
def test_a_table_gives_what_a_search_finds(
    label: str, most: int, nearest: int, small_project: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relabel.page.captions.NEAREST", nearest)  # the tables of the project list eight
    corpus, relevance = open_corpus(small_project), stages.open_label(small_project, label, "all")
    captions = choose_captions(corpus, range(len(corpus)), most)
    found = read_table(ArtefactRef.of(stages.neighbour_table(small_project, label, "all")), captions)
    assert (found is None) == (nearest == 8)
    expected = search(relevance, captions, label, Runtime(threads=1), Work(tmp_path))
    for column, values in zip(found or expected, expected, strict=True):
        assert np.array_equal(column, values)
