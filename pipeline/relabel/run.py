"""Walks the whole graph of stages, and gathers what they found into one report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from relabel import stages
from relabel.config import Config
from relabel.datasets import fetch
from relabel.errors import MissingError, RelabelError, UsageError
from relabel.judge.report import Report, metrics
from relabel.stages import Job, Project
from relabel.store.artefact import is_current
from relabel.store.atomic import write_text
from relabel.store.manifest import Manifest

Against = Literal["cxc", "eccv", "stsb"]
FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to what is fetched for it, where no path is given."""


@dataclass
class Outcome:
    """What a walk made.

    Attributes
    ----------
    report : Report
        Tables and records.
    problems : list of RelabelError
        Labels that could not be built; all others were.
    places : dict of str to Path
        What lies where.
    """

    report: Report = field(default_factory=lambda: Report((), ()))
    problems: list[tuple[str, RelabelError]] = field(default_factory=list)
    places: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One stage of a plan; `state` is "done", "to do" or "waits" (for a stage before it)."""

    stage: str
    name: str
    state: Literal["done", "to do", "waits"]
    out: str


def run(project: Project, mirror: Path | None = None) -> Outcome:
    """Do everything for one dataset: fetch, ingest, tune, encode, judge, correlate. What is finished is not repeated.

    A label that lacks something (Java, a model, vectors) is left out and named; all others are built.

    Raises
    ------
    RelabelError
        If the corpus cannot be had, or no label can.
    """
    outcome = Outcome()
    corpus(project, mirror)
    labels = list(project.config.sources)
    against: list[Against] = ["cxc", "eccv"] if project.config.ingest.prefix == "coco" else []
    judged = correlate(project, labels, against, outcome=outcome)
    layout, split = project.layout, project.config.judge.split
    judged.places |= {"captions": layout.corpus, "labels": layout.encoding(split, "")}
    if against:
        judged.places |= {
            "scores of judged pairs": layout.judgement(split, ""),
            "tables, pictures": layout.report(split),
        }
    return judged


def correlate(
    project: Project,
    labels: Sequence[str],
    against: Sequence[Against],
    outcome: Outcome | None = None,
) -> Outcome:
    """Hold labels against human judgement, building what is not there yet; write tables and pictures.

    Parameters
    ----------
    project : Project
    labels : sequence of str
        Names in params.yaml; all if empty.
    against : sequence of "cxc", "eccv", "stsb"
    """
    outcome = outcome or Outcome()
    names = list(labels) or list(project.config.sources)
    for label in names:
        project.config.source(label)
    if not (project.layout.corpus / "manifest.json").exists():
        corpus(project, None)
    judged: dict[str, Manifest] = {}
    for label in sorted(
        names, key=lambda n: project.config.source(n).kind == "pairs"
    ):  # a gate comes before what it gates
        try:
            judged[label] = _judged(project, label, bool({"cxc", "eccv"} & set(against)))
        except RelabelError as error:
            outcome.problems.append((label, error))
    if not judged:
        raise outcome.problems[0][1]
    present = {label: judged[label] for label in names if label in judged}
    makers: dict[Against, Callable[[Project, dict[str, Manifest]], Report]] = {
        "cxc": _cxc,
        "eccv": _eccv,
        "stsb": _stsb,
    }
    for name in against:
        report = _naming(makers[name](project, present), present)
        outcome.report += report
        if name != "stsb":
            _write(project, name, report)
    return outcome


def corpus(project: Project, mirror: Path | None) -> None:
    """Fetch and ingest the dataset, unless it is there."""
    params, runtime = project.config.ingest, project.runtime
    if params.path is None:
        if params.dataset not in FETCHED:
            known = ", ".join(FETCHED)
            raise UsageError(
                f"no captions are known for dataset {params.dataset}", todo=f"Give ingest.path, or use {known}."
            )
        fetch(FETCHED[params.dataset], runtime.data, mirror, runtime.progress)
    manifest, built = stages.ingest(project)
    runtime.progress.note(stages.status(built, manifest, project.layout.corpus))


def plan(project: Project) -> list[Step]:
    """Say what `run` would do, and do nothing."""
    layout, split = project.layout, project.config.judge.split
    steps = [Step("ingest", project.config.ingest.dataset, "to do", str(layout.corpus))]
    try:
        rows = len(project.corpus)
        steps = [Step("ingest", f"{project.config.ingest.dataset}, {rows:,} captions", "done", str(layout.corpus))]
    except MissingError:
        pass
    if needs_word2vec(project.config):
        there = (project.word2vec / "manifest.json").exists()
        steps.append(Step("tune", "cbow", "done" if there else "to do", str(project.word2vec)))
    makers: dict[str, Callable[[str], Job]] = {"encode": lambda label: stages.encode(project, label, split)}
    if project.config.ingest.prefix == "coco":
        makers["judge"] = lambda label: stages.judge(project, label)
    for stage, make in makers.items():
        place = layout.encoding if stage == "encode" else layout.judgement
        for label in project.config.sources:
            try:
                job = make(label)
                state: Literal["done", "to do", "waits"] = "done" if is_current(job.out, job.draft) else "to do"
            except MissingError:
                state = "waits"
            steps.append(Step(stage, label, state, str(place(split, label))))
    return steps


def needs_word2vec(config: Config) -> bool:
    """Whether a label takes the word vectors that are trained here."""
    return any(p.source == "cbow" and getattr(p, "vectors", "") == "word2vec" for p in config.sources.values())


def _judged(project: Project, label: str, judge: bool) -> Manifest:
    note, params = project.runtime.progress.note, project.config.sources[label]
    if params.source == "cbow" and getattr(params, "vectors", "") == "word2vec":
        manifest, built = stages.tune(project, "cbow")
        note(stages.status(built, manifest, project.word2vec))
    jobs: list[Callable[[], Job]] = [lambda: stages.encode(project, label, project.config.judge.split)]
    if judge:
        jobs.append(lambda: stages.judge(project, label))
    for make in jobs:
        job = make()
        manifest, built = job.run()
        note(stages.status(built, manifest, job.out))
    return manifest


def _naming(report: Report, judged: dict[str, Manifest]) -> Report:
    """Say which vectors or model a label used: shortly in its name, whole below the first table and in the records."""
    uses = {label: str(m.facts["uses"]) for label, m in judged.items() if m.facts.get("uses")}
    short = {label: f"{label} ({name.split()[0]})" for label, name in uses.items() if "/" not in name}
    tables = [replace(t, rows=tuple((short.get(row[0], row[0]), *row[1:]) for row in t.rows)) for t in report.tables]
    if uses and tables:
        note = "; ".join(f"{label}: {name}" for label, name in uses.items())
        tables[0] = replace(tables[0], notes=(*tables[0].notes, f"Models: {note}."))
    records = [{**record, "uses": uses.get(record["label"])} for record in report.records]
    return Report(tuple(tables), tuple(records))


def _cxc(project: Project, judged: dict[str, Manifest]) -> Report:
    from relabel.judge.agreement import Scored
    from relabel.judge.picture import draw
    from relabel.judge.plots import agreement_points, calibration_points
    from relabel.judge.report import csv_text, cxc_report

    params, layout = project.config.judge, project.layout
    scored = [Scored.open(layout.judgement(params.split, label), m.facts) for label, m in judged.items()]
    report = cxc_report(scored, params.resamples, params.seed, project.runtime.progress)
    folder = layout.report(params.split)
    draw(scored, report.records, folder / "cxc.png")
    write_text(folder / "cxc.agreement.csv", csv_text(agreement_points(report.records)) + "\n")
    write_text(folder / "cxc.calibration.csv", csv_text(calibration_points(scored)) + "\n")
    return report


def _eccv(project: Project, judged: dict[str, Manifest]) -> Report:
    from relabel.judge.rankings import Ranked
    from relabel.judge.report import eccv_report

    split = project.config.judge.split
    if split != "test":
        raise UsageError("ECCV Caption has the test split alone", todo="Use --split test.")
    ranked = {label: m for label, m in judged.items() if "eccv" in m.facts}
    report = eccv_report([Ranked.open(project.layout.judgement(split, n), m.facts) for n, m in ranked.items()])
    lacking = [label for label in judged if label not in ranked]
    if lacking and report.tables:
        note = f"Not ranked: {', '.join(lacking)}, which score pair by pair; `--gate sbert` re-ranks sbert's best."
        first = report.tables[0]
        report = replace(report, tables=(replace(first, notes=(*first.notes, note)), *report.tables[1:]))
    return report


def _stsb(project: Project, judged: dict[str, Manifest]) -> Report:
    from relabel.judge.stsb import judge_stsb
    from relabel.judge.stsb_report import stsb_report

    scores = {}
    for label in judged:
        source = project.config.source(label)
        if source.kind != "baseline":
            folder = project.layout.root / "stsb" / label
            scores[label] = judge_stsb(source, project.runtime.data, folder, project.runtime)
    return stsb_report(scores)


def _write(project: Project, name: str, report: Report) -> None:
    """Write a report in every form that people and programs read."""
    folder = project.layout.report(project.config.judge.split)
    write_text(folder / f"{name}.csv", report.render("csv") + "\n")
    write_text(folder / f"{name}.md", report.render("md") + "\n")
    write_text(folder / f"{name}.tex", report.render("latex") + "\n")
    write_text(folder / f"{name}.json", json.dumps(metrics(report.records), indent=1) + "\n")
