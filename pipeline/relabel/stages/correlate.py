"""correlate: the agreement of labels with human judgement, in one report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from relabel import stages
from relabel.core.errors import RelabelError, UsageError
from relabel.judge.report import Report, ReportFiles, metrics, write_report
from relabel.stages import Project
from relabel.stages.variants import report_variant
from relabel.store.manifest import MANIFEST, Manifest

Against = Literal["cxc", "eccv", "stsb"]


@dataclass
class EvaluationResult:
    """Report of several labels, with the labels that are missing from it.

    Attributes
    ----------
    report : Report
    problems : list of (str, RelabelError)
        Labels that could not be built, each with its error.
    paths : dict of str to Path
        Written files and folders, by their description.
    """

    report: Report = field(default_factory=lambda: Report((), ()))
    problems: list[tuple[str, RelabelError]] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)


def correlate(project: Project, labels: Sequence[str], against: Sequence[Against]) -> EvaluationResult:
    """Compare labels with human judgement; write tables and pictures.

    Encodings and judgements that do not exist yet are built. A label that lacks something (Java, a model, vectors) is
    left out and listed in the result. `report/SPLIT` holds the report of all labels of the parameter file; any other
    report has a folder of its own beside it.

    Parameters
    ----------
    project : Project
    labels : sequence of str
        Names in params.yaml; all if empty.
    against : sequence of "cxc", "eccv", "stsb"
        Crisscrossed Captions and ECCV Caption judge encodings of COCO's captions; STS-B has its own sentences. If
        empty, labels are encoded and not judged.

    Raises
    ------
    UsageError
        If a label does not exist, ECCV Caption is requested for another split than test, or no label can be ranked.
    RelabelError
        If no label could be built.
    """
    if "eccv" in against and project.config.judge.split != "test":
        raise UsageError("ECCV Caption covers the test split only", todo="Use --split test.")
    result, names = EvaluationResult(), list(labels) or list(project.config.sources)
    specs = {label: project.config.source(label).spec for label in names}
    if against != ["stsb"]:
        judged: dict[str, Manifest] = {}
        # Labels that score pair by pair come last: the gate that they need is one of the others.
        for label in sorted(names, key=lambda n: specs[n].pairwise):
            try:
                judged[label] = _build_label(project, label, judge=bool(against))
            except RelabelError as error:
                result.problems.append((label, error))
        if not judged:
            raise result.problems[0][1]
        # The report lists labels in the order of the request.
        judged = {label: judged[label] for label in names if label in judged}
        split = project.config.judge.split
        folder = project.layout.report(report_variant(project, labels).folder(split))
        for name, report_of in (("cxc", _cxc), ("eccv", _eccv)):
            if name in against:
                report, files = report_of(project, judged, against)
                _write(project, folder, name, report, files, judged)
                result.paths["tables, pictures"] = folder
                result.report += report
    if "stsb" in against:
        result.report += _stsb(project, [label for label in names if not specs[label].baseline], result)
    return result


def _build_label(project: Project, label: str, judge: bool) -> Manifest:
    """Build the encoding of a label and, if asked, its judgement; return the manifest of the last one."""
    if not (project.layout.corpus / MANIFEST).exists():
        stages.fetch_and_ingest(project)
    encoding = stages.build_encoding(project, label, project.config.judge.split)
    return stages.run_logged(project, stages.judge(project, label)) if judge else encoding


def _cxc(project: Project, judged: dict[str, Manifest], _: Sequence[Against]) -> tuple[Report, ReportFiles]:
    from relabel.core.tables import csv_text
    from relabel.judge.calibration import agreement_points, calibration_points
    from relabel.judge.cxc_report import PairScores, cxc_report
    from relabel.judge.cxc_sampled import sampled_report
    from relabel.judge.plot import draw

    params = project.config.judge
    scores = [PairScores.open(stages.judgement_folder(project, label), m.facts) for label, m in judged.items()]
    progress, threads = project.runtime.progress, project.runtime.threads
    report = cxc_report(scores, params.resamples, params.seed, progress, threads)
    sampled = sampled_report(scores, params.draws, params.seed, params.draw_side, params.draw_unit, progress)
    points = {"agreement": agreement_points(report.records), "calibration": calibration_points(scores)}
    texts = {f"cxc.{name}.csv": csv_text(rows) + "\n" for name, rows in points.items()}
    return report + sampled, ReportFiles(texts, {"cxc.png": partial(draw, scores, report.records)})


def _eccv(project: Project, judged: dict[str, Manifest], against: Sequence[Against]) -> tuple[Report, ReportFiles]:
    from relabel.judge.eccv_report import QueryScores, eccv_report

    scores = [QueryScores.open(stages.judgement_folder(project, label), m.facts) for label, m in judged.items()]
    report = eccv_report(scores)
    if not report.tables:
        error = UsageError(
            f"{', '.join(judged)}: not ranked on ECCV Caption, which takes all pairs, since they score pair by pair",
            todo="Use `--gate sbert` to re-rank the best candidates of sbert.",
        )
        # With other judged sets, the report has their tables and the error is a note.
        if against == ["eccv"]:
            raise error
        project.runtime.progress.note(str(error))
    return report, ReportFiles()


def _stsb(project: Project, labels: Sequence[str], result: EvaluationResult) -> Report:
    from relabel.judge.stsb import judge_stsb, stsb_report

    scores = {}
    for label in labels:
        source, folder = project.config.source(label), project.layout.stsb(label)
        try:
            parts = project.config.parts(label)
            for part in (label, *parts):
                stages.ensure_models(project, part)
            scores[label] = judge_stsb(source, project.runtime.data, folder, project.runtime, parts=parts)
            # The difference between both rows is the cost of the gate.
            if (alone := source.without_gate()) is not None:
                scores[f"{label} without its gate"] = judge_stsb(alone, project.runtime.data, folder, project.runtime)
        except RelabelError as error:
            result.problems.append((label, error))
    if not scores and result.problems:
        raise result.problems[0][1]
    return stsb_report(scores)


def _write(
    project: Project, out: Path, name: str, report: Report, files: ReportFiles, judged: dict[str, Manifest]
) -> None:
    """Write a report in every form."""
    forms = {"csv": report.render("csv"), "md": report.render("md"), "tex": report.render("latex")}
    forms["json"] = json.dumps(metrics(report.records), indent=1)
    texts = {f"{name}.{form}": text + "\n" for form, text in forms.items()} | files.texts
    write_report(out, name, ReportFiles(texts, files.pictures), judged, project.runtime.progress)
