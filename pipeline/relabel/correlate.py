"""Holds labels against human judgement and gathers what was found into one report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from relabel import stages
from relabel.errors import RelabelError, UsageError
from relabel.judge.report import Report, metrics
from relabel.judge.report_folder import Files, write_report
from relabel.judge.stsb_report import stsb_report
from relabel.sources.base import Source
from relabel.stages import Project
from relabel.store.manifest import Manifest

Against = Literal["cxc", "eccv", "stsb"]


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


def correlate(project: Project, labels: Sequence[str], against: Sequence[Against]) -> Outcome:
    """Hold labels against human judgement, building what is not there yet; write tables and pictures.

    A label that lacks something (Java, a model, vectors) is left out and named; all others are shown.

    Parameters
    ----------
    project : Project
    labels : sequence of str
        Names in params.yaml; all if empty.
    against : sequence of "cxc", "eccv", "stsb"
        Crisscrossed Captions and ECCV Caption judge encodings of COCO's captions; STS-B has sentences of its own. If
        empty, labels are encoded and not judged.

    Raises
    ------
    UsageError
        If a label is unknown.
    RelabelError
        If no label could be built.
    """
    outcome, names = Outcome(), list(labels) or list(project.config.sources)
    kinds = {label: project.config.source(label).kind for label in names}
    if against != ["stsb"]:
        judged: dict[str, Manifest] = {}
        for label in sorted(names, key=lambda n: kinds[n] == "pairs"):  # a gate comes before what it gates
            try:
                judged[label] = stages.prepare(project, label, judged=bool(against))
            except RelabelError as error:
                outcome.problems.append((label, error))
        if not judged:
            raise outcome.problems[0][1]
        judged = {label: judged[label] for label in names if label in judged}
        for name, report_of in (("cxc", _cxc), ("eccv", _eccv)):
            if name in against:
                found, files = report_of(project, judged)
                report = _naming(found, judged)
                _write(project, name, report, files, judged)
                outcome.report += report
    if "stsb" in against:
        outcome.report += _stsb(project, [label for label in names if kinds[label] != "baseline"], outcome)
    return outcome


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


def _cxc(project: Project, judged: dict[str, Manifest]) -> tuple[Report, Files]:
    from relabel.judge.agreement import Scored
    from relabel.judge.picture import draw
    from relabel.judge.plots import agreement_points, calibration_points
    from relabel.judge.report import csv_text, cxc_report

    params, layout = project.config.judge, project.layout
    scored = [Scored.open(layout.judgement(params.split, label), m.facts) for label, m in judged.items()]
    report = cxc_report(scored, params.resamples, params.seed, project.runtime.progress)
    points = {"agreement": agreement_points(report.records), "calibration": calibration_points(scored)}
    texts = {f"cxc.{name}.csv": csv_text(rows) + "\n" for name, rows in points.items()}
    return report, Files(texts, {"cxc.png": partial(draw, scored, report.records)})


def _eccv(project: Project, judged: dict[str, Manifest]) -> tuple[Report, Files]:
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
    return report, Files()


def _stsb(project: Project, labels: Sequence[str], outcome: Outcome) -> Report:
    from relabel.judge.stsb import judge_stsb

    scores = {}
    for label in labels:
        source, folder = project.config.source(label), project.layout.root / "stsb" / label
        try:
            parts = _parts(project, label)
            for part in (label, *parts):
                stages.models(project, part)
            scores[label] = judge_stsb(source, project.runtime.data, folder, project.runtime, parts=parts)
            if getattr(source.params, "gate", None) is not None and source.name == "bert_sts":  # what the gate costs
                alone = type(source)(source.params.model_copy(update={"gate": None}))
                scores[f"{label} without its gate"] = judge_stsb(alone, project.runtime.data, folder, project.runtime)
        except RelabelError as error:
            outcome.problems.append((label, error))
    if not scores and outcome.problems:
        raise outcome.problems[0][1]
    return stsb_report(scores)


def _parts(project: Project, label: str) -> dict[str, Source[Any]]:
    """Sources of all labels that a label is made of or gated by, and theirs."""
    found: dict[str, Source[Any]] = {}
    for part in project.config.source(label).parts():
        found |= {part: project.config.source(part)} | _parts(project, part)
    return found


def _write(project: Project, name: str, report: Report, files: Files, judged: dict[str, Manifest]) -> None:
    """Write a report in every form that people and programs read."""
    forms = {"csv": report.render("csv"), "md": report.render("md"), "tex": report.render("latex")}
    forms["json"] = json.dumps(metrics(report.records), indent=1)
    texts = {f"{name}.{form}": text + "\n" for form, text in forms.items()} | files.texts
    out = project.layout.report(project.config.judge.split)
    write_report(out, name, Files(texts, files.pictures), judged, project.runtime.progress)
