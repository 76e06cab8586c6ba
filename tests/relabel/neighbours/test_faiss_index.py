"""Contract: an exhaustive index finds the neighbours of the exact search; the recall of any other is measured and
recorded. Scores and order are exact, and the number of neighbours is k. Repeated runs are equal.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.export.formats import in_folder
from tests.relabel.neighbours.searches import pooled, rows_of, searched

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Project


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    return in_folder(small_project, tmp_path / "labels")


@pytest.mark.parametrize("of", ["captions", "images"])
@pytest.mark.parametrize("pooling", ["max", "mean", "first"])
def test_an_exhaustive_index_is_exact(project: Project, pooling: str, of: str) -> None:
    project = pooled(project, "cbow", pooling)
    exact = rows_of(searched(project, "cbow", k=9, queries=of, candidates="val"))
    job = searched(project, "cbow", k=9, queries=of, candidates="val", index="Flat")
    # An index may choose any of equal texts.
    assert [row["scores"] for row in rows_of(job)] == [row["scores"] for row in exact]
    metadata = job.open().metadata
    assert (metadata["exact"], metadata["recall"]["value"], metadata["recall"]["queries"]) == (False, 1.0, len(exact))


def test_recall_is_measured_and_lists_have_k_rows(project: Project) -> None:
    best = rows_of(searched(project, "cbow", k=20))
    job = searched(project, "cbow", k=20, index="IVF16,Flat")
    lists, metadata, hits = rows_of(job), job.open().metadata, []
    for ours, theirs in zip(lists, best, strict=True):
        assert len(set(ours["neighbours"])) == 20
        assert ours["row"] not in ours["neighbours"]
        assert ours["scores"] == sorted(ours["scores"], reverse=True)
        scores = dict(zip(theirs["neighbours"], theirs["scores"], strict=True))
        found = zip(ours["neighbours"], ours["scores"], strict=True)
        assert all(scores.get(row, score) == score for row, score in found)
        hits += [score >= theirs["scores"][-1] for score in ours["scores"]]
    assert 0.2 < metadata["recall"]["value"] < 1.0
    assert metadata["recall"]["value"] == pytest.approx(np.mean(hits))
    first = [path.read_bytes() for path in sorted(job.out.glob("*.parquet"))]
    job.out.rename(project.labels / "elsewhere")
    searched(replace(project, runtime=Runtime(threads=2)), "cbow", k=20, index="IVF16,Flat").run()
    assert [path.read_bytes() for path in sorted(job.out.glob("*.parquet"))] == first


def test_an_index_for_other_sources_is_refused(project: Project) -> None:
    with pytest.raises(UsageError, match="cider has no index: faiss searches vectors"):
        searched(project, "cider", index="Flat").run()
    with pytest.raises(UsageError, match="faiss refuses index 'Nonsense'"):
        searched(project, "cbow", index="Nonsense").run()
    with pytest.raises(UsageError, match=r"faiss refuses index 'IVF100000,Flat': .*100000"):
        searched(project, "cbow", index="IVF100000,Flat").run()
