"""Contract: every evaluation set has a table of one line per label. A published figure is shown only for the measure,
model and protocol that it was published for; models that are no labels stand below them.

A note holds for every label in the table, or names its labels. Notes state whether an image is represented by its
captions or a vector, and whether a caption is among its own references.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.relabel.judge.rated_pairs import RATED, SCORES, judged

from relabel.config import Config
from relabel.core.numeric.statistics import Interval
from relabel.core.runtime import Runtime
from relabel.datasets.cxc import METHODS, SIDES, TASKS, HumanScores, Task
from relabel.datasets.evaluation_sets import EvaluationSet
from relabel.judge import JudgeParams
from relabel.judge.cxc import ScoredPairs
from relabel.judge.cxc_figures import PairScores, compare
from relabel.judge.figures import Estimate, set_figures
from relabel.judge.report import Judged, JudgedLabel, Report, metrics
from relabel.judge.tables import (
    Column,
    Cost,
    cxc_report,
    eccv_report,
    headline_columns,
    published_figure,
    set_report,
    summary_report,
)
from relabel.sources import source_class
from relabel.stages.judged import describe

PLAIN = JudgeParams(resamples=0, draws=0)


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


def test_published_rankings_are_not_of_a_model_in_a_folder() -> None:
    row = {"task": "eccv", "subset": "t2i", "split": "test"}
    found = published_figure(label_of("sbert"), row)
    assert (found["paper"], found["paper_r_precision"], found["paper_by"]) == (37.53, 44.94, "S-NDCG")
    assert published_figure(label_of("sbert", own_model=True), row)["paper"] is None
    assert published_figure(label_of("cbow"), row)["paper"] is None


def scored(label: JudgedLabel) -> Judged:
    """Judge 8 pairs of each task with some scores."""
    tasks: dict[Task, ScoredPairs] = {}
    for task in TASKS:
        methods = [METHODS[task][i % len(METHODS[task])] for i in range(8)]
        ids = [[f"{side[0]}{i}" for i in range(8)] for side in SIDES[task]]
        human = HumanScores(task, "test", ids[0], ids[1], np.arange(8.0) % 5, methods)
        tasks[task] = ScoredPairs(human, np.arange(8) / 9, [None] * 8, np.arange(8, dtype=np.int32))
    return compare(PairScores(label, "test", tasks), PLAIN)


OF_IMAGES: dict[str, Any] = {"images": "i.npy"}
OF_BOTH: dict[str, Any] = {"captions": "c.npy", "images": "i.npy", "pooling": "set"}
SBERT, CIDER, SAME = label_of("sbert"), label_of("cider"), label_of("same_image")
CLIP = replace(label_of("precomputed", "clip", **OF_BOTH), image_vectors=("clip",))
FUSED = replace(label_of("fuse", "both"), image_vectors=("clip",))


def notes_of(task: int, *labels: JudgedLabel) -> str:
    return " ".join(cxc_report([scored(label) for label in labels], PLAIN).tables[task].notes)


def test_notes_say_what_an_image_is_compared_by() -> None:
    assert "The judged caption itself is among the references" in notes_of(0, SBERT)
    alone = notes_of(0, SAME, CLIP)
    assert "clip: an image is compared by its own vector" in alone
    assert "first five captions" not in alone
    assert "judged caption" not in alone
    for labels in ((SBERT, CLIP), (SAME, FUSED)):
        both = notes_of(0, *labels)
        assert "first five captions" in both
        assert "clip: an image is compared by its own vector" in both


def test_no_published_figure_without_the_caption_itself() -> None:
    judged_without = [
        replace(one, records=[record | {"leave_one_out": True} for record in one.records])
        for one in (scored(SBERT), scored(SAME))
    ]
    report = cxc_report(judged_without, PLAIN)
    assert "The judged caption is no reference" in " ".join(report.tables[0].notes)
    assert {record["paper"] for record in report.records if record["task"] == "sits"} == {None}


def test_a_label_behind_a_gate_names_the_gate_whose_images_have_vectors() -> None:
    from relabel.stages import Project

    sources = {
        "clip": {"source": "precomputed", **OF_IMAGES},
        "behind": {"source": "bert_sts", "gate": "clip"},
        "plain": {"source": "bert_sts", "gate": "sbert"},
    }
    project = Project(Config(sources=sources), Runtime())
    encoding: Any = SimpleNamespace(metadata={}, provenance={})
    assert [describe(project, label, encoding).image_vectors for label in sources] == [["clip"], ["clip"], []]


def test_sampled_correlations_stand_above_published_models_of_the_test_split() -> None:
    row = {"task": "sts_sampled", "split": "test", "subset": "all", "sampled_spearman": 0.5, "sampled_deviation": 0.01}
    params = JudgeParams(resamples=0, draws=20)
    (table,) = cxc_report([Judged(SBERT, [row])], params).tables
    assert table.header == ("label", "STS", "SIS", "SITS all", "SITS non-GT", "SITS as printed", "by")
    assert table.rows[0] == ("sbert", "50.0 ±1.0", "", "", "", "", "")
    assert ("ALIGN", "72.9", "77.2", "", "", "67.6", "ALIGN") in table.rows
    assert ("PromCSE", "74.0", "", "", "", "", "PromCSE") in table.rows
    (of_val,) = cxc_report([Judged(SBERT, [row | {"split": "val"}])], params).tables
    assert (of_val.header[-1], len(of_val.rows)) == ("SITS non-GT", 1)


def ranking(label: JudgedLabel, gate: str | None = None) -> Judged:
    figures = {"map_at_r": 50.0, "r_precision": 25.0, "r_at_1": 50.0, "ties": "pessimistic", "gate": gate}
    rows = [
        {"task": "eccv", "split": "test", "subset": d, "n": n, **figures} for d, n in (("i2t", 1261), ("t2i", 1332))
    ]
    return Judged(label, rows)


def test_rankings() -> None:
    labels = [ranking(replace(SBERT, uses="org/model")), ranking(label_of("meteor"), "sbert, top 100")]
    report = eccv_report(labels, ["wmd"])
    (table,) = report.tables
    assert table.rows[0] == ("sbert", *("50.00", "25.00", "50.00") * 2, "39.93 / 43.73", "37.53 / 44.94")
    assert (table.rows[1][0], table.rows[1][-1]) == ("meteor *", "")
    notes = " ".join(table.notes)
    for note in ("* meteor: re-ranks the best of sbert, top 100", "S-NDCG: Li et al.", "not ranked: wmd", "org/model"):
        assert note in notes
    assert max(map(len, report.render("text").splitlines())) <= 100
    assert metrics(report.records) == {"sbert": 50.0, "meteor": 50.0}
    (plain,) = eccv_report([ranking(label_of("cbow"))]).tables
    assert plain.header[-1] == "R@1"
    assert eccv_report([]) == Report()


def test_a_set_of_texts_shows_published_figures_and_names_labels_that_cannot_score_it() -> None:
    rated = judged(name="flickr8k-expert", statistics=("tau_c",))
    one_group = replace(RATED, groups=["all"] * len(RATED))
    params = JudgeParams(resamples=20)
    mine = Judged(label_of("cider", "mine"), set_figures(rated, one_group, SCORES, params))
    report = set_report(rated, [mine], {"same_image": "it reads no text"}, params)
    (table,) = report.tables
    assert table.header == ("label", "tau-c", "by")
    assert ("CIDEr", "43.9", "CLIPScore") in table.rows
    assert "Not scored: same_image (it reads no text)." in table.notes
    assert report.records[0]["tau_c"] == mine.records[0]["tau_c"]
    assert set_report(rated, [], {}, params).tables == ()


def test_the_table_of_all_sets_marks_the_best_label_of_a_set() -> None:
    costs = [{"captions": 30, "seconds": 2.0, "bytes": 600}, {"captions": 10, "seconds": 2.0, "bytes": 200}]
    cost = Cost.of(costs)
    assert cost == Cost(10.0, 20.0)
    columns = [
        Column("a", {"one": Estimate(0.5), "two": Estimate(None), "three": Estimate(0.25)}, "Pearson"),
        Column("b", {"two": Estimate(0.25)}, "tau-c"),
    ]
    report = summary_report(columns, {"one": cost}, ["Not judged: c."])
    (table,) = report.tables
    assert table.header == ("label", "a", "b", "captions/s", "bytes/caption")
    assert table.rows == (
        ("one", "50.0 *", "", "10", "20"), ("two", "undefined", "25.0", "", ""), ("three", "25.0", "", "", "")
    )  # fmt: skip
    assert summary_report(columns[:1], {"one": Cost(0.34, 20.0)}).tables[0].rows[0][2] == "0.3"
    assert table.notes[0].startswith("a: Pearson; b: tau-c.")
    assert table.notes[-2] == "Not judged: c."
    assert table.notes[-1].startswith("undefined: ")
    assert report.records[1] == {
        "label": "two", "task": "summary", "subset": "all", "a": None, "b": 0.25, "captions_per_second": None,
        "bytes_per_caption": None,
    }  # fmt: skip


def test_the_columns_of_all_sets_come_from_records() -> None:
    records = [
        {"label": "x", "task": "sits", "subset": "all", "pearson": 0.9, "low": 0.8, "high": 0.95},
        {"label": "x", "task": "sits", "subset": "c2i_original", "pearson": 0.1, "low": None, "high": None},
        {"label": "x", "task": "eccv", "subset": "t2i", "map_at_r": 36.5},
    ]
    first, second = headline_columns(records, [])
    assert (first.title, first.estimates) == ("SITS", {"x": Estimate(0.9, Interval(0.8, 0.95))})
    assert (second.title, second.estimates) == ("ECCV t2i", {"x": Estimate(0.365)})


@pytest.mark.parametrize(
    ("statistics", "group", "title"), [(("spearman",), "test", "test Spearman"), ((), "all", "mean accuracy")]
)
def test_the_column_of_a_set_names_its_group(statistics: Any, group: str, title: str) -> None:
    one = EvaluationSet(
        name="s", title="S", dataset="s", read=None, statistics=statistics, group=group, pair_ids="n", protocol="P."
    )  # type: ignore[arg-type]  # fmt: skip
    name = statistics[0] if statistics else "accuracy"
    records = [
        {"label": "x", "task": "s", "subset": "dev", name: 0.1},
        {"label": "x", "task": "s", "subset": title.split()[0], name: 0.2, f"{name}_low": 0.1, f"{name}_high": 0.3},
    ]
    assert headline_columns(records, [one]) == [Column("s", {"x": Estimate(0.2, Interval(0.1, 0.3))}, title)]
