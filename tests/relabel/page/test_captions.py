"""Contract: the nearest captions of a page equal a sort of all its pairs by (-score, row)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel import stages
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.corpus.table import Caption, Corpus
from relabel.page.captions import NEAREST, PageCaptions, choose_captions, search
from relabel.sources.relevance import Relevance
from relabel.stages import Project
from relabel.store.workdir import Work


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """30 images with 1 to 4 captions in three splits."""
    captions = []
    for image in range(30):
        split = ("train", "val", "test")[image // 10]
        captions += [Caption(f"c:{image}-{i}", f"i:{image}", split, f"text {i}") for i in range(1 + image % 4)]
    return Corpus.from_captions(captions)


@pytest.fixture(scope="module")
def captions(small_project: Project) -> PageCaptions:
    return choose_captions(small_project.corpus, range(len(small_project.corpus)))


def all_scores(relevance: Relevance, captions: PageCaptions) -> NDArray[np.float64]:
    """Score every pair of captions; a caption with itself is below all others."""
    left, right = (np.asarray(captions.rows[i.ravel()]) for i in np.mgrid[: len(captions), : len(captions)])
    scores = relevance.pairs(References.single(left), right, "first").reshape(len(captions), -1)
    np.fill_diagonal(scores, -np.inf)
    return scores


def best_of(scores: NDArray[np.float64]) -> tuple[list[int], list[float]]:
    """Return candidates and scores of every caption by a sort."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :NEAREST]
    return order.ravel().tolist(), np.take_along_axis(scores, order, axis=1).round(3).ravel().tolist()


@pytest.mark.parametrize(("label", "most"), [("cbow", None), ("cider", None), ("cbow", 60)])
def test_a_search_equals_a_sort_of_all_pairs(
    label: str, most: int | None, small_project: Project, tmp_path: Path
) -> None:
    corpus = small_project.corpus
    captions = choose_captions(corpus, range(len(corpus)), most=most or len(corpus))
    relevance = stages.open_label(small_project, label, "all")
    nearest = search(relevance, captions, label, Runtime(threads=1), Work(tmp_path))
    candidates, scores = best_of(all_scores(relevance, captions))
    assert nearest.reference.tolist() == np.repeat(np.arange(len(captions)), NEAREST).tolist()
    assert nearest.candidate.tolist() == candidates
    assert nearest.score == pytest.approx(scores, abs=1.1e-3)  # searches return float32
