"""Contract: an exhaustive index finds the neighbours of the exact search; the recall of any other is measured and
recorded. Scores and order are exact, and the number of neighbours is k. Repeated runs are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.relabel.neighbours.searches import searched

from relabel.core.errors import UsageError


@pytest.mark.slow
@pytest.mark.parametrize("of", ["captions", "images"])
@pytest.mark.parametrize("pooling", ["max", "mean", "paired"])
def test_an_exhaustive_index_is_exact(dataset: Any, make_lines: Any, read_table: Any, pooling: str, of: str) -> None:
    dataset.settings = [f"sources.near.pooling={pooling}"]
    texts = {line.text: line for line in make_lines(25, "train")}
    project = dataset.encoded(list(texts.values()))  # distinct texts: an index may choose any of equal ones
    exact = searched(project, "near", k=9, of=of)
    exact.run()
    table = read_table(exact)
    job = searched(project, "near", k=9, of=of, index="Flat")
    facts = job.run()[0].facts
    assert (facts["exact"], facts["recall"]["value"]) == (False, 1.0)
    assert facts["recall"]["queries"] == len(table)
    assert read_table(job).equals(table)


def test_recall_is_measured_and_lists_have_k_rows(
    dataset: Any, make_lines: Any, read_table: Any, read_files: Any
) -> None:
    project = dataset.encoded(make_lines(40, "train"))
    exact = searched(project, "near", k=20)
    exact.run()
    best = read_table(exact).to_pylist()
    job = searched(project, "near", k=20, index="IVF16,Flat")
    facts = job.run()[0].facts
    lists = read_table(job).to_pylist()
    hits = []
    for ours, theirs in zip(lists, best, strict=True):
        assert len(set(ours["neighbours"])) == 20
        assert ours["row"] not in ours["neighbours"]
        order = list(zip([-s for s in ours["scores"]], ours["neighbours"], strict=True))
        assert [s for s, _ in order] == sorted(s for s, _ in order)
        scores = dict(zip(theirs["neighbours"], theirs["scores"], strict=True))
        assert all(
            scores.get(row, score) == score for row, score in zip(ours["neighbours"], ours["scores"], strict=True)
        )
        hits += [score >= theirs["scores"][-1] for score in ours["scores"]]
    assert 0.2 < facts["recall"]["value"] < 1.0
    assert facts["recall"]["value"] == pytest.approx(np.mean(hits))
    first = read_files(job.out)
    job.out.rename("elsewhere")
    searched(dataset.project(threads=1), "near", k=20, index="IVF16,Flat").run()
    assert read_files(job.out) == first


def test_an_index_for_other_sources_is_refused(dataset: Any, make_lines: Any) -> None:
    project = dataset.encoded(make_lines(3, "train"), labels=["near", "cider"])
    with pytest.raises(UsageError, match="cider has no index: faiss searches vectors"):
        searched(project, "cider", index="Flat").run()
    with pytest.raises(UsageError, match="faiss refuses index 'Nonsense'"):
        searched(project, "near", index="Nonsense").run()
    job = searched(project, "near", index="IVF100000,Flat")
    with pytest.raises(UsageError, match=r"faiss refuses index 'IVF100000,Flat': .*100000"):
        job.run()
