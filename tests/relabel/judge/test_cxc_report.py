"""Contract: the report has one record per label, task and subset, with the coefficients of the scored pairs; other
pairs are counted and reported.

The baseline is computed from the sampling methods alone and equals the scores of same_image. A published figure is
shown only for the measure, model and protocol that it was published for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relabel.core.numeric.statistics import kendall, pearson, round_relative, spearman
from relabel.corpus import Corpus
from relabel.judge import JudgeParams
from relabel.judge.compare import compare
from relabel.judge.cxc import score_cxc
from relabel.judge.cxc_report import PairScores, agreement, baseline, cxc_report
from relabel.judge.published_results import PAPERS, published
from relabel.sources import source_class
from relabel.sources.same_image import SameImage, SameImageRelevance
from relabel.store.workdir import Work


@pytest.fixture(scope="module")
def same_image(cxc_test: Corpus, tmp_path_factory: pytest.TempPathFactory) -> PairScores:
    work = new_work(tmp_path_factory.mktemp("same"))
    score_cxc(cxc_test, SameImageRelevance(cxc_test, range(len(cxc_test)), "max"), SameImage, "test", work)
    return PairScores.open(work.folder, work.facts)


@pytest.fixture(scope="module")
def partial_label(few: Corpus, odd: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> PairScores:
    """Return a label that scored the pairs of 300 images only."""
    work = new_work(tmp_path_factory.mktemp("odd"), "odd")
    score_cxc(few, odd.Relevance(few, range(len(few))), odd.Source, "test", work)
    return PairScores.open(work.folder, work.facts)


def new_work(folder: Path, label: str = "same_image") -> Work:
    (folder / ".done").mkdir()
    return Work(folder, {"label": label, "params": {"source": label, "pooling": "max"}})


def records(scored: PairScores, resamples: int = 0) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the records of a report of one label, by task and subset."""
    report = cxc_report([compare(scored, JudgeParams(resamples=resamples, draws=0))])
    return {(record["task"], record["subset"]): record for record in report.records}


def test_same_image_has_the_known_figures(same_image: PairScores) -> None:
    rows = records(same_image, resamples=200)
    assert list(rows) == [
        ("sts", "all"),
        ("sts", "c2c_cocaption"),
        ("sts", "c2c_isim"),
        ("sits", "all"),
        ("sits", "c2i_original"),
        ("sits", "c2i_intrasim"),
        ("sis", "all"),
    ]
    all_pairs = rows["sits", "all"]
    assert all_pairs["n"] == 44_833
    assert all_pairs["pearson"] == pytest.approx(0.7115, abs=5e-5)
    assert 0.705 < all_pairs["low"] < 0.7115 < all_pairs["high"] < 0.718
    assert (all_pairs["paper"], all_pairs["paper_source"]) == (0.711, PAPERS["SAM"])
    other = rows["sits", "c2i_intrasim"]
    assert (other["n"], other["pearson"], other["low"]) == (19_833, None, None)
    assert rows["sts", "all"]["pearson"] == pytest.approx(0.712, abs=5e-4)
    assert rows["sis", "all"]["pearson"] is None


def test_val_split(cxc_val: Corpus, tmp_path: Path) -> None:
    work = new_work(tmp_path)
    relevance = SameImageRelevance(cxc_val, range(len(cxc_val)), "max")
    score_cxc(cxc_val, relevance, SameImage, "val", work, tasks=("sts", "sits"))
    rows = records(PairScores.open(work.folder, work.facts))
    assert rows["sts", "all"]["pearson"] == pytest.approx(0.644, abs=5e-4)
    all_pairs = rows["sits", "all"]
    assert (all_pairs["n"], all_pairs["missing"], all_pairs["paper"]) == (44_722, 0, None)
    assert all_pairs["pearson"] == pytest.approx(0.688, abs=5e-4)


def test_baseline_equals_the_source(same_image: PairScores) -> None:
    for task, columns in baseline(same_image).columns.items():
        assert (columns.relevance == same_image.columns[task].relevance).all()


def test_figures_are_those_of_the_scored_pairs(partial_label: PairScores) -> None:
    rows = {(record["task"], record["subset"]): record for record in agreement(partial_label, resamples=50)}
    table = partial_label.tables["sits"].to_pylist()
    for subset in ("all", "c2i_original", "c2i_intrasim"):
        inside = [r for r in table if subset in ("all", r["method"])]
        scored = [r for r in inside if r["relevance"] is not None]
        x, y = (np.array([r[c] for r in scored]) for c in ("relevance", "human"))
        row = rows["sits", subset]
        assert (row["n"], row["missing"]) == (len(scored), len(inside) - len(scored))
        assert row["pearson"] == pearson(round_relative(x), y)
        assert row["spearman"] == spearman(round_relative(x), y)
        assert row["kendall"] == kendall(round_relative(x), y)
        assert len(row["first_missing"]) == 5
        first = next(r for r in inside if r["relevance"] is None)
        assert row["first_missing"][0] == f"{first['left']} {first['right']}: {first['missing']}"
    assert records(partial_label)["sits", "all"]["paper"] is None


def params_of(source: str, **changed: object) -> dict[str, object]:
    """Return all parameters of a label as a judgement records them."""
    params = source_class(source).spec.params(**{"source": source, **changed})
    return params.model_dump(mode="json")


@pytest.mark.parametrize(
    ("source", "changed", "subset", "value"),
    [
        ("same_image", {}, "all", 0.711),
        ("cider", {}, "all", 0.738),
        ("cider", {"tokenizer": "lower_split"}, "all", 0.734),
        ("cider", {"tokenizer": "lower_split"}, "c2i_intrasim", 0.453),
        ("cider", {}, "c2i_intrasim", None),
        ("cider", {"variant": "cider"}, "all", None),
        ("cider", {"df": "train"}, "all", None),
        ("cider", {"sigma": 5.0}, "all", None),
        ("cider", {"pooling": "max"}, "all", None),
        ("meteor", {}, "all", 0.757),
        ("meteor", {"heap": "1G", "processes": 1}, "all", 0.757),
        ("spice", {}, "all", 0.729),
        ("spice", {}, "c2i_intrasim", 0.536),
        ("spice", {"text": "ptb"}, "all", 0.728),
        ("sbert", {}, "all", 0.877),
        ("sbert", {"model": "sentence-transformers/all-mpnet-base-v2"}, "all", 0.877),
        ("sbert", {"prompt": "query: "}, "all", None),
        ("sbert", {"max_length": 8}, "all", None),
        ("sbert", {"model": "data/sbert-cxc"}, "all", None),
        ("sbert", {"model": "/models/sentence-transformers/all-MiniLM-L6-v2"}, "all", None),
        ("sbert", {"model": "someone/tuned-on-coco"}, "all", None),
        ("cbow", {}, "all", None),
        ("vectors", {"captions": "c.npy", "images": "i.npy", "pooling": "refs"}, "all", None),
    ],
)
def test_published_figures_require_the_same_measure_and_protocol(
    source: str, changed: dict[str, object], subset: str, value: float | None
) -> None:
    params = params_of(source, **changed)
    figures = published(params, "sits", subset, "test")
    assert (figures.value if figures else None) == value
    assert figures is None or figures.paper in PAPERS
    assert published(params, "sits", subset, "val") is None
    assert published(params, "sts", subset, "test") is None


def test_published_rankings() -> None:
    figures = published(params_of("sbert"), "eccv", "t2i")
    assert figures is not None
    assert (figures.value, figures.r_precision, figures.paper) == (37.53, 44.94, "S-NDCG")
    assert published(params_of("cbow"), "eccv", "t2i") is None
    assert published(params_of("sbert", model="data/sbert-cxc"), "eccv", "t2i") is None


def test_a_model_of_a_folder_has_no_published_figure() -> None:
    assert published(params_of("sbert"), "sits", "all", "test", own_model=True) is None
    assert published(params_of("sbert"), "eccv", "i2t", own_model=True) is None
    assert published(params_of("same_image"), "sits", "all", "test", own_model=True) is not None


def test_no_published_figure_without_the_caption_itself(same_image: PairScores) -> None:
    without = replace(same_image, include_self=False)
    assert all(record["paper"] is None for record in records(without).values())


def test_no_published_figure_if_pairs_are_missing(same_image: PairScores) -> None:
    tables = dict(same_image.tables)
    table = tables["sits"]
    place = table["method"].to_pylist().index("c2i_original")
    relevances = [None if i == place else value for i, value in enumerate(table["relevance"].to_pylist())]
    at = table.schema.get_field_index("relevance")
    tables["sits"] = table.set_column(at, "relevance", pa.array(relevances, pa.float64()))
    rows = records(replace(same_image, tables=tables))
    assert rows["sits", "all"]["paper"] is None
    assert rows["sits", "c2i_intrasim"]["paper"] is not None  # no pair of this subset is missing
