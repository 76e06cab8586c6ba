"""A row a label, task and subset: the coefficients of the pairs that were scored, the rest counted and named.

same_image is always there, from the sampling methods alone, equal to the source's own scores; a paper's figure stands
beside the label that it is about and no other.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from relabel.corpus import Corpus
from relabel.judge.agreement import AgreementRow, Scored, baseline, correlate
from relabel.judge.cxc import score_cxc
from relabel.judge.published import PAPERS, published_pearson, published_ranking
from relabel.judge.statistics import kendall, pearson, settled, spearman
from relabel.sources.same_image import SameImage, SameImageRelevance
from relabel.store.work import Work


@pytest.fixture(scope="module")
def same(cxc_test: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    work = new_work(tmp_path_factory.mktemp("same"))
    score_cxc(cxc_test, SameImageRelevance(cxc_test, range(len(cxc_test)), "max"), SameImage, "test", work)
    return Scored.open(work.folder, work.facts)


@pytest.fixture(scope="module")
def some(few: Corpus, odd: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    """A label that scored the pairs of 300 images alone."""
    work = new_work(tmp_path_factory.mktemp("odd"), "odd")
    score_cxc(few, odd.Relevance(few, range(len(few))), odd.Source, "test", work)
    return Scored.open(work.folder, work.facts)


def new_work(folder: Path, label: str = "same_image") -> Work:
    (folder / ".done").mkdir()
    return Work(folder, {"label": label, "params": {"source": label, "pooling": "max"}})


def find(rows: list[AgreementRow], label: str, task: str, subset: str) -> AgreementRow:
    (row,) = [r for r in rows if (r.label, r.task, r.subset) == (label, task, subset)]
    return row


def test_same_image_gives_the_known_figures(same: Scored) -> None:
    rows = correlate([same], resamples=200)
    assert [(r.task, r.subset) for r in rows] == [
        ("sts", "all"),
        ("sts", "c2c_cocaption"),
        ("sts", "c2c_isim"),
        ("sits", "all"),
        ("sits", "c2i_original"),
        ("sits", "c2i_intrasim"),
        ("sis", "all"),
    ]
    whole = find(rows, "same_image", "sits", "all")
    assert whole.figures.n == 44_833
    assert whole.figures.pearson == pytest.approx(0.7115, abs=5e-5)
    assert whole.figures.interval is not None
    assert 0.705 < whole.figures.interval.low < 0.7115 < whole.figures.interval.high < 0.718
    assert whole.published is not None
    assert (whole.published.value, whole.published.paper) == (0.711, "SAM")
    assert whole.own_image is None
    other = find(rows, "same_image", "sits", "c2i_intrasim")
    assert (other.figures.n, other.figures.pearson, other.figures.interval) == (19_833, None, None)
    assert other.own_image is False
    assert find(rows, "same_image", "sits", "c2i_original").own_image is True
    assert find(rows, "same_image", "sts", "all").figures.pearson == pytest.approx(0.712, abs=5e-4)
    assert find(rows, "same_image", "sis", "all").figures.pearson is None


def test_val_split(cxc_val: Corpus, tmp_path: Path) -> None:
    work = new_work(tmp_path)
    relevance = SameImageRelevance(cxc_val, range(len(cxc_val)), "max")
    score_cxc(cxc_val, relevance, SameImage, "val", work, tasks=("sts", "sits"))
    rows = correlate([Scored.open(work.folder, work.facts)], resamples=0)
    assert find(rows, "same_image", "sts", "all").figures.pearson == pytest.approx(0.644, abs=5e-4)
    whole = find(rows, "same_image", "sits", "all")
    assert (whole.figures.n, whole.missing, whole.published) == (44_722, 0, None)
    assert whole.figures.pearson == pytest.approx(0.688, abs=5e-4)


def test_baseline_equals_the_source(same: Scored) -> None:
    for task, columns in baseline(same).columns.items():
        assert (columns.relevance == same.columns[task].relevance).all()


def test_baseline_is_added_once_and_on_the_same_pairs(same: Scored, some: Scored) -> None:
    rows = correlate([some], resamples=0)
    assert {r.label for r in rows} == {"same_image", "odd"}
    assert find(rows, "same_image", "sits", "all").figures.n == 44_833
    assert len(correlate([same, some], resamples=0)) == len(rows)
    assert correlate([]) == []


def test_figures_are_those_of_the_scored_pairs(some: Scored) -> None:
    rows = correlate([some], resamples=50)
    table = some.tables["sits"].to_pylist()
    for subset in ("all", "c2i_original", "c2i_intrasim"):
        inside = [r for r in table if subset in ("all", r["method"])]
        scored = [r for r in inside if r["relevance"] is not None]
        x, y = (np.array([r[c] for r in scored]) for c in ("relevance", "human"))
        row = find(rows, "odd", "sits", subset)
        assert (row.figures.n, row.missing) == (len(scored), len(inside) - len(scored))
        assert row.figures.pearson == pearson(settled(x), y)
        assert row.figures.spearman == spearman(settled(x), y)
        assert row.figures.kendall == kendall(settled(x), y)
        assert len(row.why) == 5
        first = next(r for r in inside if r["relevance"] is None)
        assert row.why[0] == f"{first['left']} {first['right']}: {first['missing']}"
        assert row.published is None


@pytest.mark.parametrize(
    ("params", "subset", "value"),
    [
        ({"source": "cider", "variant": "cider_d", "tokenizer": "ptb", "pooling": "refs"}, "all", 0.738),
        ({"source": "cider", "variant": "cider_d", "tokenizer": "lower_split", "pooling": "refs"}, "all", 0.734),
        ({"source": "cider", "variant": "cider_d", "tokenizer": "lower_split"}, "c2i_intrasim", 0.453),
        ({"source": "cider", "variant": "cider", "tokenizer": "ptb"}, "all", None),
        ({"source": "cider", "variant": "cider_d", "tokenizer": "ptb"}, "c2i_intrasim", None),
        ({"source": "meteor"}, "all", 0.757),
        ({"source": "sbert", "pooling": "max"}, "all", 0.877),
        ({"source": "sbert", "pooling": "mean"}, "all", None),
        ({"source": "cbow"}, "all", None),
    ],
)
def test_papers_figures(params: dict[str, str], subset: str, value: float | None) -> None:
    found = published_pearson(params, "sits", subset, "test")
    assert (found.value if found else None) == value
    assert found is None or found.paper in PAPERS
    assert published_pearson(params, "sits", subset, "val") is None
    assert published_pearson(params, "sts", subset, "test") is None


def test_papers_rankings() -> None:
    found = published_ranking({"source": "sbert", "pooling": "max"}, "t2i")
    assert found is not None
    assert (found.map_at_r, found.r_precision, found.paper) == (37.53, 44.94, "S-NDCG")
    assert published_ranking({"source": "cbow"}, "t2i") is None


def test_no_papers_figure_without_the_caption_itself(same: Scored) -> None:
    without = Scored(same.label, same.params, same.split, same.tables, include_self=False)
    assert all(row.published is None for row in correlate([without], resamples=0))
