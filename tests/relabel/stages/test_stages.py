"""Contract: the stages make labels and judgements of any corpus, repeat no finished work, never read an artefact of
other parameters, and report labels that cannot be built.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.relabel.published import few_scores, write_captions
from tests.relabel_cli.runner import invoke

import relabel
from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import SILENT, Progress, Runtime
from relabel.judge.scores import FunctionRelevance, TextFunction, score_cxc_with_function
from relabel.stages import Session, open_corpus
from relabel.stages.correlate import correlate
from relabel.stages.judged import open_scores
from relabel.stages.run import plan_run, run
from relabel.store.manifest import MANIFEST

SMALL = [
    "ingest.format=jsonl",
    "ingest.expected={}",
    "ingest.path=captions.jsonl",
    "judge.split=val",
    "judge.resamples=20",
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


@dataclass
class Notes(Progress):
    """Progress that keeps its notes."""

    lines: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)


def session(*settings: str) -> Session:
    """Return a project whose parameters count as those of a file."""
    return Session(Config(**load_config(None, [*SMALL, *settings]).model_dump()), Runtime())


def records(found: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(r["label"], r["task"], r["subset"]): r for r in found.report.records}


def pearson_of_a_loop(built: Session) -> float:
    """Compute Pearson's r of cider over the judged pairs of caption and image whose ids the corpus has."""
    relevance, corpus, human = stages.open_label(built, "cider", "val"), open_corpus(built), few_scores("sits", "val")
    ours, theirs = [], []
    for caption, image, score in zip(human.left, human.right, human.score, strict=True):
        if caption in corpus.row_of and image in corpus.image_of:
            references = corpus.references([corpus.image_of[image]])
            ours.append(float(relevance.pairs(references, np.array([corpus.row_of[caption]], np.int32))[0]))
            theirs.append(float(score))
    return float(np.corrcoef(ours, theirs)[0, 1])


def test_a_complete_run_on_a_small_corpus(small: Path) -> None:
    steps = plan_run(session())
    stages_ahead = {"encode", "correlate", "neighbours", "export", "report"}
    assert {(s.stage, s.state) for s in steps} == {("ingest", "to do"), *((name, "to do") for name in stages_ahead)}
    assert {s.rows for s in steps if s.stage != "correlate"} == {None}  # the captions are not a published dataset
    outcome = run(session())
    assert outcome.problems == []
    rows = records(outcome)
    sits = rows["cider", "sits", "all"]
    assert sits["n"] >= 200
    assert sits["n"] + sits["missing"] == len(few_scores("sits", "val"))  # scored, or counted as missing
    assert sits["pearson"] == pytest.approx(pearson_of_a_loop(session()), abs=1e-4)
    assert {s.state for s in plan_run(session())} == {"done"}
    other_seed = {s.stage: s.state for s in plan_run(session("judge.seed=1"))}
    assert other_seed["report"] != "done"
    for name in ("cxc.csv", "cxc.json", "cxc.md", "cxc.tex", "cxc.png", "cxc.agreement.csv", "cxc.calibration.csv"):
        assert (outcome.paths["tables, pictures"] / "cxc" / name).stat().st_size > 0


def test_every_split_is_labelled_where_the_judged_one_is_missing(small: Path) -> None:
    rows = [
        {"caption_id": f"90{n}", "image_id": f"90{n // 2}", "split": "train", "text": f"a dog {n}"} for n in range(8)
    ]
    with Path("captions.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
    outcome = run(session("judge.split=test"))
    assert outcome.problems == []
    assert {path.parts[3] for path in outcome.lookups} == {path.parts[3] for path in outcome.pages} == {"train", "val"}
    # People have judged val's pairs, whose tables are those of the run.
    assert records(outcome)["cider", "sits", "all"]["pearson"] == pytest.approx(pearson_of_a_loop(session()), abs=1e-4)


def test_a_parameter_rebuilds_its_label_only(small: Path) -> None:
    run(session())
    before = {p: p.stat().st_mtime_ns for p in small.rglob("manifest.json")}
    run(session())
    assert {p: p.stat().st_mtime_ns for p in small.rglob("manifest.json")} == before
    run(session("sources.cider.sigma=3"))
    changed = {p.parent.relative_to(small).as_posix() for p, t in before.items() if p.stat().st_mtime_ns != t}
    artefacts = {p.parent.relative_to(small).as_posix() for p in before}
    assert changed == {name for name in artefacts if name.endswith("/cider")} | {
        "labels/coco/report/val/cxc",
        "labels/coco/page/val",
    }


def test_the_report_of_all_labels_is_written_and_follows_the_parameters(small: Path) -> None:
    outcome = run(session())
    assert outcome.paths["tables, pictures"] == Path("labels/coco/report/val")
    Path("params.yaml").write_text(yaml.safe_dump(json.loads(session().config.model_dump_json())))
    correlate(Session(load_config(None), Runtime()), [], ["cxc"])
    written = [p for p in Path("labels").rglob("*") if p.is_file() and p.suffix != ".lock" and p.name != MANIFEST]
    before = {p: p.read_bytes() for p in written}
    more = "sources.more={source: cider, tokenizer: lower_split, sigma: 3}"
    for settings, labels in (([], ["cider"]), ([more], ["cider", "more"])):
        trial = correlate(Session(load_config(None, settings), Runtime()), labels, ["cxc"])
        assert trial.paths == {}
        assert {r["label"] for r in trial.report.records} == {"same_image", "cider", *labels}
        assert any("two captions of one image" in note and "cider 0." in note for note in trial.report.tables[0].notes)
    assert {p: p.read_bytes() for p in before} == before
    # Options build again what they change, and without them the same bytes come back.
    for name, value in (("sources.cider.pooling", "max"), ("judge.resamples", 7), ("judge.leave_one_out", "true")):
        correlate(Session(load_config(None, [f"{name}={value}"]), Runtime()), ["cider"], ["cxc"])
        assert {p: p.read_bytes() for p in before} != before
        complete = correlate(Session(load_config(None), Runtime()), [], ["cxc"])
        assert complete.paths["tables, pictures"].name == "val"
        assert {p: p.read_bytes() for p in before} == before


@pytest.mark.parametrize(("leave_one_out", "pooling"), [("false", "set"), ("true", "max")])
def test_a_function_is_judged_by_the_protocol_of_labels(small: Path, leave_one_out: str, pooling: str) -> None:
    built = session(f"judge.leave_one_out={leave_one_out}", f"sources.cider.pooling={pooling}")
    Path("params.yaml").write_text(yaml.safe_dump(json.loads(built.config.model_dump_json())))
    scorer = relabel.Scorer("cider", documents=relabel.ingest("other/coco", "captions.jsonl"))

    def mine(references: list[list[str]], captions: list[str]) -> Any:
        return scorer.pairs(references, captions).tolist()

    alone = relabel.correlate([scorer, mine], on="cxc")
    assert not Path("labels").exists()
    expected = records(correlate(built, ["cider"], ["cxc"]))
    for (label, *row), record in {(r["label"], r["task"], r["subset"]): r for r in alone.records}.items():
        # The baseline takes all pairs. A function does not say how images pool the captions of the other one.
        if label != "same_image" and (label, pooling) != ("mine", "max"):
            same = expected["cider", *row]
            figures = [{name: v for name, v in r.items() if not isinstance(v, str)} for r in (record, same)]
            assert figures[0] == pytest.approx(figures[1], abs=1e-6)
    function = TextFunction("cider", scorer.pairs, scorer.pooling)
    found = score_cxc_with_function(open_corpus(built), function, built.config.judge, SILENT)
    for task, pairs in open_scores(built, "cider").tasks.items():
        np.testing.assert_allclose(found.tasks[task].relevance, pairs.relevance, atol=1e-6)
        assert found.tasks[task].missing == pairs.missing
    # No pair of two images is among the few that are judged here.
    corpus = open_corpus(built)
    sets = corpus.references(range(0, 20)), corpus.references(range(20, 40))
    by_function = FunctionRelevance(corpus, range(len(corpus)), scorer.pooling, function).set_pairs(*sets)
    np.testing.assert_allclose(by_function, stages.open_label(built, "cider", "val").set_pairs(*sets), atol=1e-6)


@pytest.mark.parametrize("returned", [[0.5], [[0.5], [0.5]], [0.5, float("nan")], [float("inf"), 0], ["a", "b"], None])
def test_a_function_is_checked_by_a_small_call(small: Path, returned: Any) -> None:
    calls = []

    def wrong(references: list[list[str]], captions: list[str]) -> Any:
        calls.append(len(captions))
        return returned

    Path("params.yaml").write_text(yaml.safe_dump(json.loads(session().config.model_dump_json())))
    with pytest.raises(CheckError, match="function wrong did not return"):
        relabel.correlate(wrong, on="cxc")
    assert calls == [2]
    with pytest.raises(UsageError, match="eccv"):
        relabel.correlate(wrong, on="eccv")


def test_judging_a_function_needs_the_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    with pytest.raises(MissingError, match="relabel fetch coco-captions"):
        relabel.correlate(lambda references, captions: [0.0] * len(captions), on="cxc")


def test_labels_that_cannot_be_built_are_reported(small: Path) -> None:
    broken = "sources={good: {source: same_image}, bad: {source: cbow, vectors: gone.txt, tokenizer: lower_split}}"
    outcome = run(session(broken))
    assert [label for label, _ in outcome.problems] == ["bad"]
    assert "gone.txt" in str(outcome.problems[0][1])
    assert ("good", "sits", "all") in records(outcome)
    with pytest.raises(MissingError, match=r"gone\.txt"):
        correlate(session(broken), ["bad"], ["cxc"])


def test_labels_without_what_fetch_gets_are_left_out_unless_named(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    glove = "{source: cbow, tokenizer: lower_split}"
    gated = "{source: bert_sts, gate: glove}"
    sources = f"sources={{same_image: {{source: same_image}}, glove: {glove}, gated: {gated}}}"
    left_out = [f"{label} is left out: data/glove: glove not found" for label in ("glove", "gated")]
    built = session(sources, "export.labels=[glove]")
    with pytest.raises(MissingError, match="relabel fetch glove"):
        run(built)  # nothing is left to export
    noted = Notes()
    built = replace(session(sources, "export.labels=[]"), runtime=Runtime(progress=noted))
    outcome = run(built)
    assert outcome.problems == []
    assert ("same_image", "sits", "all") in records(outcome)
    assert ("glove", "sits", "all") not in records(outcome)
    assert "tables, pictures" in outcome.paths  # the report of the parameter file is that of the labels that are left
    assert [note for note in noted.lines if "left out" in note] == [
        f"{line}. Get it with `relabel fetch glove`." for line in left_out
    ]
    with pytest.raises(MissingError, match="relabel fetch glove"):
        correlate(built, ["glove"], ["cxc"])
    (small / "params.yaml").write_text(yaml.safe_dump(built.config.model_dump(mode="json")), encoding="utf-8")
    encode = ["encode", "--split", "val", "--label", "glove,same_image"]
    assert invoke(*encode)[0] == 3
    assert invoke(*encode, "--skip-missing")[0] == 0
    assert invoke("encode", "--split", "val", "--label", "glove", "--skip-missing")[0] == 3
