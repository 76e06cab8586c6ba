"""Contract: a published figure is shown only for the measure, model and protocol that it was published for; models that
are no labels stand below them. Notes name their labels, and state whether an image is represented by its captions or a
vector. A report has the same figures in every form, and a constant reads `undefined`.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.relabel.judge.conftest import Odd

from relabel.corpus import Corpus
from relabel.datasets.cxc import METHODS, SIDES, TASKS, HumanScores, Task
from relabel.datasets.evaluation_sets import evaluation_set
from relabel.judge import JudgeParams
from relabel.judge.cxc import ScoredPairs, score_cxc
from relabel.judge.cxc_figures import PairScores, baseline, compare
from relabel.judge.report import JudgedLabel, LabelFigures, Report, metrics
from relabel.judge.tables import (
    cxc_report,
    eccv_report,
    headline_report,
    published_figure,
    records_of,
    reproduction_report,
)
from relabel.sources import source_class
from relabel.sources.cider import CiderParams
from relabel.store.workdir import Work

PLAIN = JudgeParams(resamples=0)


def label_of(source: str, name: str | None = None, own_model: bool = False, **changed: object) -> JudgedLabel:
    params = source_class(source).spec.params(**{"source": source, **changed}).model_dump(mode="json")
    return JudgedLabel(label=name or source, params=params, own_model=own_model)


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
        ("spice", {}, "all", 0.729),
        ("spice", {}, "c2i_intrasim", 0.536),
        ("spice", {"text": "ptb"}, "all", 0.728),
        ("sbert", {}, "all", 0.877),
        ("sbert", {"model": "sentence-transformers/all-mpnet-base-v2"}, "all", 0.877),
        ("sbert", {"prompt": "query: "}, "all", None),
        ("sbert", {"max_length": 8}, "all", None),
        ("sbert", {"model": "data/sbert-cxc"}, "all", None),
        ("sbert", {"model": "/models/sentence-transformers/all-MiniLM-L6-v2"}, "all", None),
        ("precomputed", {"captions": "c.npy", "images": "i.npy", "pooling": "set"}, "all", None),
    ],
)
def test_published_figures_require_the_same_measure_and_protocol(
    source: str, changed: dict[str, object], subset: str, value: float | None
) -> None:
    label = label_of(source, **changed)
    row = {"task": "sits", "subset": subset, "split": "test", "missing": 0, "leave_one_out": False}
    assert published_figure(label, row)["paper"] == value
    for other in ({"split": "val"}, {"task": "sts"}, {"missing": 1}, {"leave_one_out": True}):
        assert published_figure(label, row | other)["paper"] is None


def test_a_published_figure_is_reproduced_within_its_last_decimal() -> None:
    def table(label: JudgedLabel, task: str, **figures: Any) -> Any:
        record = {"task": task, "subset": "all", "missing": 0, **figures}
        return reproduction_report(
            records_of([LabelFigures(label, [record])]), [evaluation_set("flickr8k-expert")]
        ).tables

    for value, tick in ((0.4381, "✓"), (0.4399, "✓"), (0.4374, ""), (0.4406, "")):
        (found,) = table(label_of("cider"), "flickr8k-expert", tau_c=value)
        figures = (f"{100 * value:.1f}", "43.9", f"{100 * value - 43.9:+.1f}", tick)
        assert found.rows == (("cider", "flickr8k-expert", *figures, "CLIPScore"),)
    (found,) = table(label_of("cider"), "sits", split="test", leave_one_out=False, pearson=0.7384)
    assert found.rows[0][2:] == ("73.8", "73.8", "+0.0", "✓", "BCLS")
    assert table(label_of("cbow"), "flickr8k-expert", tau_c=0.5) == ()
    assert table(label_of("cider"), "flickr8k-expert", tau_c=0.5, missing=1) == ()


def scored(label: JudgedLabel) -> LabelFigures:
    """Judge 8 pairs of each task with some scores."""
    tasks: dict[Task, ScoredPairs] = {}
    for task in TASKS:
        methods = [METHODS[task][i % len(METHODS[task])] for i in range(8)]
        ids = [[f"{side[0]}{i}" for i in range(8)] for side in SIDES[task]]
        human = HumanScores(task, "test", ids[0], ids[1], np.arange(8.0) % 5, methods)
        tasks[task] = ScoredPairs(human, np.arange(8) / 9, [None] * 8, np.arange(8, dtype=np.int32))
    return compare(PairScores(label, "test", tasks), PLAIN, draws=0)


OF_BOTH: dict[str, Any] = {"captions": "c.npy", "images": "i.npy", "pooling": "set"}
SBERT, CIDER, SAME = label_of("sbert"), label_of("cider"), label_of("same_image")
CLIP = replace(label_of("precomputed", "clip", **OF_BOTH), image_vectors=("clip",))
FUSED = replace(label_of("fuse", "both"), image_vectors=("clip",))


def notes_of(task: int, *labels: JudgedLabel) -> str:
    return " ".join(cxc_report([scored(label) for label in labels], PLAIN, {}).tables[task].notes)


def test_notes_say_what_an_image_is_compared_by() -> None:
    assert "The references of an image include the judged caption" in notes_of(0, SBERT)
    alone = notes_of(0, SAME, CLIP)
    assert "clip: an image is compared by its own vector" in alone
    assert "first five captions" not in alone
    assert "judged caption" not in alone
    for labels in ((SBERT, CLIP), (SAME, FUSED)):
        both = notes_of(0, *labels)
        assert "first five captions" in both
        assert "clip: an image is compared by its own vector" in both


def ranking(label: JudgedLabel, gate: str | None = None) -> LabelFigures:
    figures = {"map_at_r": 50.0, "r_precision": 25.0, "r_at_1": 50.0, "ties": "pessimistic", "gate": gate}
    queries = {"i2t": 1261, "t2i": 1332}
    return LabelFigures(
        label, [{"task": "eccv", "split": "test", "subset": d, "n": n, **figures} for d, n in queries.items()]
    )


def test_rankings() -> None:
    labels = [ranking(replace(SBERT, uses="org/model")), ranking(label_of("meteor"), "sbert, top 100")]
    report = eccv_report(labels, ["wmd"])
    (table,) = report.tables
    assert table.rows[0] == ("sbert", *("50.00", "25.00", "50.00") * 2, "39.93 / 43.73", "37.53 / 44.94")
    assert (table.rows[1][0], table.rows[1][-1]) == ("meteor *", "")
    notes = " ".join(table.notes)
    for note in (
        "* meteor: re-ranks the best of sbert, top 100",
        "S-NDCG: Li et al.",
        "score pair by pair: wmd",
        "org/model",
    ):
        assert note in notes
    assert max(map(len, report.render("text").splitlines())) <= 100
    assert metrics(report.records) == {"sbert": 50.0, "meteor": 50.0}
    (plain,) = eccv_report([ranking(label_of("cbow"))]).tables
    assert plain.header[-1] == "R@1"
    assert eccv_report([]) == Report()


@pytest.fixture(scope="module")
def report(few: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Judge the test relevance, on the pairs of 300 images, under a name for which SAM publishes figures of all."""
    label = JudgedLabel(label="cider_lower", params=CiderParams(tokenizer="lower_split").model_dump())
    folder, params = tmp_path_factory.mktemp("odd"), JudgeParams(resamples=100)
    score_cxc(few, Odd(few, range(len(few))), False, "test", Work(folder))
    scored = PairScores.open(folder, label, "test", False)
    return cxc_report([compare(one, params, draws=0) for one in (baseline(scored), scored)], params, {})


def test_the_headline_has_the_agreement_of_each_label_and_names_the_best(report: Report) -> None:
    (table,) = headline_report(report, {"cider_lower": (1234.5, "captions")}).tables
    assert table.header == ("label", "all", "non-GT", "paper", "per second")
    assert [(row[0], row[-1]) for row in table.rows] == [("same_image", ""), ("cider_lower", "1,234 captions")]
    full = {row[0]: row for row in report.tables[0].rows}
    assert all(cell in full[row[0]] for row in table.rows for cell in row[1:-1])
    assert table.notes[0].startswith("cider_lower agrees best")
    assert max(map(len, headline_report(report, {}).render(width=80).splitlines())) <= 80


def test_all_forms_hold_the_same_figures(report: Report) -> None:
    def row(records: list[dict[str, str]], label: str, subset: str) -> dict[str, str]:
        return next(r for r in records if (r["label"], r["task"], r["subset"]) == (label, "sits", subset))

    record = row(list(report.records), "cider_lower", "all")
    for style in ("text", "md", "latex"):
        assert f"{record['pearson']:.4f}" in report.render(style)  # type: ignore[arg-type]
    records = list(csv.DictReader(io.StringIO(report.render("csv"))))
    assert len(records) == len(report.records) == 14
    again = row(records, "cider_lower", "all")
    assert float(again["pearson"]) == record["pearson"]
    assert int(again["missing"]) == int(record["missing"]) > 40_000
    assert again["paper"] == ""
    undefined = row(records, "same_image", "c2i_intrasim")
    assert undefined["pearson"] == undefined["low"] == undefined["kendall"] == ""
    assert json.loads(json.dumps(report.data, allow_nan=False))["rows"] == list(report.records)
    points = list(csv.DictReader(io.StringIO(report.points["cxc.agreement.csv"])))
    assert {(p["task"], p["subset"]) for p in points if p["label"] == "same_image"} == {("sts", "all"), ("sits", "all")}
    levels = csv.DictReader(io.StringIO(report.points["cxc.calibration.csv"]))
    assert {level["label"] for level in levels} == {"same_image", "cider_lower"}
