"""Contract: the stages make labels and judgements of any corpus, repeat no finished work, never read an artefact of
other parameters, and report labels that cannot be built. On all of COCO they reproduce the papers' table.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.relabel.published import few_scores, write_captions

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.stages import Project, judged
from relabel.stages.correlate import correlate
from relabel.stages.nearest import search_labels
from relabel.stages.run import plan_run, run

SMALL = [
    "ingest.format=jsonl",
    "ingest.expected={}",
    "ingest.path=captions.jsonl",
    "ingest.tokenizer=none",
    "judge.split=val",
    "judge.resamples=20",
    "judge.draws=5",
    "sources={same_image: {source: same_image}, cider: {source: cider, tokenizer: lower_split}}",
]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with captions of 40 of COCO's val images, which few of the human scores judge."""
    monkeypatch.chdir(tmp_path)
    for module in ("cxc", "cxc_figures"):
        monkeypatch.setattr(f"relabel.judge.{module}.human_scores", few_scores)
    write_captions(tmp_path / "captions.jsonl")
    return tmp_path


def project(*settings: str) -> Project:
    """Return a project whose parameters count as those of a file."""
    return Project(Config(**load_config(None, [*SMALL, *settings]).model_dump()), Runtime())


def records(found: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(r["label"], r["task"], r["subset"]): r for r in found.report.records}


def pearson_of_a_loop(built: Project) -> float:
    """Compute Pearson's r of cider over the judged pairs of caption and image whose ids the corpus has."""
    relevance, corpus, human = stages.open_label(built, "cider", "val"), built.corpus, few_scores("sits", "val")
    ours, theirs = [], []
    for caption, image, score in zip(human.left, human.right, human.score, strict=True):
        if caption in corpus.row_of and image in corpus.image_of:
            references = corpus.references([corpus.image_of[image]])
            ours.append(float(relevance.pairs(references, np.array([corpus.row_of[caption]], np.int32))[0]))
            theirs.append(float(score))
    return float(np.corrcoef(ours, theirs)[0, 1])


def test_a_complete_run_on_a_small_corpus(small: Path) -> None:
    steps = plan_run(project())
    stages_ahead = {"encode", "correlate", "neighbours", "export", "report"}
    assert {(s.stage, s.state) for s in steps} == {("ingest", "to do"), *((name, "to do") for name in stages_ahead)}
    assert {s.rows for s in steps if s.stage != "correlate"} == {None}  # the captions are not a published dataset
    outcome = run(project())
    assert outcome.problems == []
    rows = records(outcome)
    sits = rows["cider", "sits", "all"]
    assert sits["n"] >= 200
    assert sits["n"] + sits["missing"] == len(few_scores("sits", "val"))  # scored, or counted as missing
    assert sits["pearson"] == pytest.approx(pearson_of_a_loop(project()), abs=1e-4)
    assert {s.state for s in plan_run(project())} == {"done"}
    other_seed = {s.stage: s.state for s in plan_run(project("judge.seed=1"))}
    assert other_seed["report"] != "done"
    for name in ("cxc.csv", "cxc.json", "cxc.md", "cxc.tex", "cxc.png", "cxc.agreement.csv", "cxc.calibration.csv"):
        assert (outcome.paths["tables, pictures"] / "cxc" / name).stat().st_size > 0


def test_a_parameter_rebuilds_its_label_only(small: Path) -> None:
    run(project())
    before = {p: p.stat().st_mtime_ns for p in small.rglob("manifest.json")}
    run(project())
    assert {p: p.stat().st_mtime_ns for p in small.rglob("manifest.json")} == before
    run(project("sources.cider.sigma=3"))
    changed = {p.parent.relative_to(small).as_posix() for p, t in before.items() if p.stat().st_mtime_ns != t}
    artefacts = {p.parent.relative_to(small).as_posix() for p in before}
    assert changed == {name for name in artefacts if name.endswith("/cider")} | {
        "labels/coco/report/val/cxc",
        "labels/coco/page/val",
    }


def test_only_the_report_of_the_parameter_file_is_written(small: Path) -> None:
    outcome = run(project())
    assert outcome.paths["tables, pictures"] == Path("labels/coco/report/val")
    before = {p: p.read_bytes() for p in Path("labels").rglob("*") if p.is_file() and p.suffix != ".lock"}
    Path("params.yaml").write_text(yaml.safe_dump(json.loads(project().config.model_dump_json())))
    more = "sources.more={source: cider, tokenizer: lower_split, sigma: 3}"
    for settings, labels in (([], ["cider"]), ([more], ["cider", "more"])):
        trial = correlate(Project(load_config(None, settings), Runtime()), labels, ["cxc"])
        assert trial.paths == {}
        assert {r["label"] for r in trial.report.records} == {"same_image", "cider", *labels}
    # What the file describes is not replaced by options.
    for name, value in (("sources.cider.pooling", "max"), ("judge.resamples", 7), ("judge.leave_one_out", "true")):
        with pytest.raises(UsageError, match=name):
            correlate(Project(load_config(None, [f"{name}={value}"]), Runtime()), ["cider"], ["cxc"])
    assert {p: p.read_bytes() for p in before} == before
    written = correlate(Project(load_config(None), Runtime()), ["cider", "same_image"], ["cxc"])
    assert written.paths["tables, pictures"].name == "val"


def test_figures_do_not_depend_on_the_other_labels(small: Path) -> None:
    """A report is assembled from the figures of its labels, each of them computed once."""
    both = records(correlate(project(), [], ["cxc"]))
    before = {p: p.stat().st_mtime_ns for p in Path("labels/coco/figures").rglob("figures.json")}
    assert {p.parent.name for p in before} == {"same_image", "cider"}
    one = records(correlate(project(), ["cider"], ["cxc"]))
    assert one.items() <= both.items()
    assert {p: p.stat().st_mtime_ns for p in before} == before
    replaced = Project(project("judge.seed=1").config, Runtime(replace=True))
    other = records(correlate(replaced, ["cider"], ["cxc"]))
    key = ("cider", "sits", "all")
    assert (other[key]["pearson"], other[key]["low"]) != (one[key]["pearson"], one[key]["low"])
    assert other[key]["pearson"] == one[key]["pearson"]


def test_the_table_of_all_sets_follows_the_figures_of_cxc(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The only set of texts is a file.
    monkeypatch.setattr(judged, "set_names", lambda: ())
    pairs = [("a dog", "a brown dog", 4), ("two cats", "a cat", 3), ("a dog", "a cat", 1)]
    lines = [json.dumps({"reference": r, "candidate": c, "human": h}) for r, c, h in pairs]
    Path("mine.jsonl").write_text("\n".join(lines))
    figures = []
    for changed in ("judge.leave_one_out=false", "judge.leave_one_out=true"):
        found = records(correlate(project(changed), [], ["all", "mine.jsonl"]))["cider", "sits", "all"]["pearson"]
        with Path("labels/coco/report/val/judged/judged.csv").open(encoding="utf-8") as file:
            rows = {(row["label"], row["task"]): row for row in csv.DictReader(file)}
        figures.append(float(rows["cider", "summary"]["SITS"]))
        assert figures[-1] == found
    assert figures[0] != figures[1]


def test_labels_that_cannot_be_built_are_reported(small: Path) -> None:
    broken = "sources={good: {source: same_image}, bad: {source: cbow, vectors: gone.txt, tokenizer: lower_split}}"
    outcome = run(project(broken))
    assert [label for label, _ in outcome.problems] == ["bad"]
    assert "gone.txt" in str(outcome.problems[0][1])
    assert ("good", "sits", "all") in records(outcome)
    with pytest.raises(MissingError, match=r"gone\.txt"):
        correlate(project(broken), ["bad"], ["cxc"])


def test_nearest_equals_a_loop_over_all_captions(small: Path) -> None:
    built = project()
    stages.ingest(built).run()
    stages.encode(built, "cider", "val").run()
    caption_id = built.corpus.caption_ids[7]
    text, hits, _ = search_labels(built, None, caption_id, ["cider"], 5, "val")
    assert text == built.corpus.texts[7]
    relevance = stages.open_label(built, "cider", "val")
    scores = []
    for row in range(len(built.corpus)):
        if row != 7:
            one = relevance.pairs(References.single(np.array([7], np.int32)), np.array([row], np.int32))
            scores.append((-float(one[0]), row))
    best = sorted(scores)[:5]
    assert [h.caption_id for h in hits["cider"]] == [built.corpus.caption_ids[row] for _, row in best]
    assert [h.score for h in hits["cider"]] == [-score for score, _ in best]
    assert [h.same_image for h in hits["cider"]] == [
        built.corpus.image[row] == built.corpus.image[7] for _, row in best
    ]
    with pytest.raises(UsageError, match="no such caption"):
        search_labels(built, None, "coco:0", ["cider"], 5, "val")


ANCHORS = {  # label: SITS all and non-GT, with tolerances; published figures, CxC test
    "same_image": (0.7115, None, 0.0005),
    "cider": (0.738, 0.487, 0.001),
    "cider_lower_split": (0.7346, 0.4537, 0.0005),
    "meteor": (0.757, 0.524, 0.001),
    "sbert": (0.8814, 0.7614, 0.0005),
}


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(1800)
def test_all_of_coco_reproduces_the_papers_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run(Project(load_config(None), Runtime()))
    assert outcome.problems == []
    rows = records(outcome)
    for label, (pooled, other, tolerance) in ANCHORS.items():
        assert rows[label, "sits", "all"]["n"] == 44_833
        assert rows[label, "sits", "all"]["pearson"] == pytest.approx(pooled, abs=tolerance)
        assert rows[label, "sits", "c2i_intrasim"]["pearson"] == (other and pytest.approx(other, abs=tolerance))
    sts = {subset: rows["sbert", "sts", subset]["pearson"] for subset in ("all", "c2c_isim", "c2c_cocaption")}
    assert sts == {
        k: pytest.approx(v, abs=0.001) for k, v in (("all", 0.777), ("c2c_isim", 0.712), ("c2c_cocaption", 0.698))
    }
    ranked = {(label, d): rows[label, "eccv", d] for label in ("sbert", "same_image") for d in ("i2t", "t2i")}
    figures = {key: (row["map_at_r"], row["r_precision"]) for key, row in ranked.items()}
    assert figures == {
        ("sbert", "i2t"): pytest.approx((39.67, 43.38), abs=0.1),
        ("sbert", "t2i"): pytest.approx((36.57, 44.01), abs=0.1),
        ("same_image", "i2t"): pytest.approx((31.27, 31.30), abs=0.1),
        ("same_image", "t2i"): pytest.approx((13.59, 13.59), abs=0.1),
    }
