"""correlate: the agreement of labels with human judgement, in one report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relabel import stages
from relabel.core.errors import RelabelError, UsageError
from relabel.datasets.judged import JudgedSet, judged_set, set_names
from relabel.datasets.judged_file import JUDGEMENT_FILES, judged_file
from relabel.judge.judged_sets import (
    Cost,
    Figure,
    ScoreFunction,
    column_title,
    headline,
    score_judgements,
    score_with_function,
    set_figures,
    set_report,
    summary_report,
)
from relabel.judge.report import Report, ReportFiles, metrics, write_report
from relabel.sources.base import Source
from relabel.sources.texts import TextScores
from relabel.stages import Project
from relabel.stages.variants import report_variant
from relabel.store.manifest import MANIFEST, Manifest

Against = str
"""Name of a judged set: "cxc", "eccv", "stsb", or one of `relabel.datasets.judged.set_names`."""
ENCODED: tuple[Against, ...] = ("cxc", "eccv")
"""Sets that judge encodings of COCO's captions. All others have texts of their own."""


def judged_names() -> tuple[str, ...]:
    """Return the names of all judged sets.

    Examples
    --------
    >>> from relabel.stages.correlate import judged_names
    >>> judged_names()[:4]
    ('cxc', 'eccv', 'stsb', 'flickr8k-cf')
    """
    return (*ENCODED, "stsb", *set_names())


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


def correlate(
    project: Project,
    labels: Sequence[str],
    against: Sequence[Against],
    scores: Sequence[Path] = (),
    functions: Mapping[str, ScoreFunction] = MappingProxyType({}),
) -> EvaluationResult:
    """Compare labels with human judgement; write tables and pictures.

    Encodings and judgements that do not exist yet are built. A label that lacks something (Java, a model, vectors) is
    left out and listed in the result. `report/SPLIT` holds the report of all labels of the parameter file; any other
    report has a folder of its own beside it.

    Parameters
    ----------
    project : Project
    labels : sequence of str
        Names in params.yaml; all if empty.
    against : sequence of str
        Names of judged sets (see `judged_names`), or files of judgements (see `relabel.datasets.judged_file`).
        Crisscrossed Captions and ECCV Caption judge encodings of COCO's captions; all others have texts of their own,
        and are shown with a table of all sets. If empty, labels are encoded and not judged.
    scores : sequence of Path
        Files of scores that were computed elsewhere, judged on CxC under the name of the file (see
        `relabel.judge.external_scores`). With such files, `labels` may be empty, which then stands for no label.
    functions : mapping of str to callable
        Functions of texts by name, judged beside the labels on sets of texts (see
        `relabel.judge.judged_sets.score_with_function`). With functions, too, empty `labels` stand for no label.

    Raises
    ------
    UsageError
        If a label or a set does not exist, ECCV Caption is requested for another split than test, or no label can be
        ranked.
    RelabelError
        If no label could be built.
    """
    if "eccv" in against and project.config.judge.split != "test":
        raise UsageError("ECCV Caption covers the test split only", todo="Use --split test.")
    sets = _text_sets(project, against)
    result = EvaluationResult()
    names = list(labels) or ([] if scores or functions else list(project.config.sources))
    specs = {label: project.config.source(label).spec for label in names}
    encoded = [name for name in ENCODED if name in against]
    if encoded or not against:
        judged: dict[str, Manifest] = {}
        # Labels that score pair by pair come last: the gate that they need is one of the others.
        for label in sorted(names, key=lambda n: specs[n].pairwise):
            try:
                judged[label] = _build_label(project, label, judge=bool(against))
            except RelabelError as error:
                result.problems.append((label, error))
        if not judged and not scores:
            raise result.problems[0][1]
        # The report lists labels in the order of the request.
        judged = {label: judged[label] for label in names if label in judged}
        split = project.config.judge.split
        folder = project.layout.report(report_variant(project, labels).folder(split))
        if "cxc" in against:
            report, files = _cxc(project, judged, scores)
            result.report += report
            # Files of scores have no fingerprint, so the report of record holds labels alone.
            if not scores:
                _write(project, folder, "cxc", report, files, judged)
                result.paths["tables, pictures"] = folder
        if "eccv" in against and judged:
            report, files = _eccv(project, judged, against)
            _write(project, folder, "eccv", report, files, judged)
            result.paths["tables, pictures"] = folder
            result.report += report
    if "stsb" in against:
        result.report += _stsb(project, [label for label in names if not specs[label].baseline], result)
    if sets:
        result.report += _texts(project, names, sets, functions, result)
    return result


def _build_label(project: Project, label: str, judge: bool) -> Manifest:
    """Build the encoding of a label and, if asked, its judgement; return the manifest of the last one."""
    if not (project.layout.corpus / MANIFEST).exists():
        stages.fetch_and_ingest(project)
    encoding = stages.build_encoding(project, label, project.config.judge.split)
    return stages.run_logged(project, stages.judge(project, label)) if judge else encoding


def _text_sets(project: Project, against: Sequence[Against]) -> list[JudgedSet]:
    """Open the named sets of texts, and the files of judgements.

    Raises
    ------
    UsageError
        If a name is neither a set nor a file.
    """
    opened = []
    for name in against:
        if name in (*ENCODED, "stsb"):
            continue
        if name in set_names():
            opened.append(judged_set(name))
        elif Path(name).suffix in JUDGEMENT_FILES:
            opened.append(judged_file(Path(name), project.config.judge.statistic, _caption_texts(project)))
        else:
            what = f"no judged set {name!r}"
            todo = f"There are {', '.join(judged_names())}; or name a file ({', '.join(JUDGEMENT_FILES)})."
            raise UsageError(what, todo=todo)
    return opened


def _caption_texts(project: Project) -> dict[str, str]:
    """Return the texts of the ingested corpus by caption id; none where nothing is ingested."""
    if not (project.layout.corpus / MANIFEST).exists():
        return {}
    corpus = project.corpus
    return dict(zip(corpus.caption_ids, corpus.texts, strict=True))


def _texts(
    project: Project,
    labels: Sequence[str],
    sets: Sequence[JudgedSet],
    functions: Mapping[str, ScoreFunction],
    result: EvaluationResult,
) -> Report:
    """Judge labels and functions on sets of texts: a table per set, then one of all sets."""
    params, runtime = project.config.judge, project.runtime
    report = Report((), ())
    columns: dict[str, Mapping[str, float | None]] = {}
    costs: dict[str, list[TextScores]] = {}
    for judged in sets:
        try:
            judgements = judged.open(runtime.data)
        except RelabelError as error:
            result.problems.append((judged.name, error))
            continue
        figures: dict[str, list[Figure]] = {}
        left_out: dict[str, str] = {}
        for label in labels:
            try:
                for name, source, parts in _variants(project, label):
                    reasons = [one.query_blocker() for one in (source, *parts.values())]
                    if reason := next(filter(None, reasons), None):
                        left_out[name] = reason
                        continue
                    folder = project.layout.stsb(label)
                    scored = score_judgements(judgements, source, runtime, parts, folder)
                    figures[name] = set_figures(
                        judged, judgements, scored.scores, params.resamples, params.seed, runtime.threads
                    )
                    costs.setdefault(name, []).append(scored)
            except RelabelError as error:
                result.problems.append((f"{label} on {judged.name}", error))
        for name, function in functions.items():
            values = score_with_function(judgements, function)
            figures[name] = set_figures(judged, judgements, values, params.resamples, params.seed, runtime.threads)
        report += set_report(judged, figures, left_out, params.resamples, params.seed)
        if figures:
            best = {name: headline(judged, values) for name, values in figures.items()}
            title = next(iter(best.values())).statistic
            columns[f"{judged.name} {column_title(title)}"] = {name: figure.value for name, figure in best.items()}
    if not columns and result.problems:
        raise result.problems[0][1]
    columns = _other_columns(result.report.records) | columns
    return report + summary_report(columns, {name: Cost.of(scored) for name, scored in costs.items()})


def _variants(project: Project, label: str) -> Iterator[tuple[str, Source[Any], dict[str, Source[Any]]]]:
    """Yield a label's source with its parts, and the source without its gate, which shows the cost of the gate."""
    source, parts = project.config.source(label), project.config.parts(label)
    for name in (label, *parts):
        stages.ensure_models(project, name)
    yield label, source, parts
    if (alone := source.without_gate()) is not None:
        yield f"{label} without its gate", alone, {}


def _other_columns(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return the columns of CxC, ECCV Caption and STS-B in the table of all sets."""
    columns: dict[str, dict[str, float | None]] = {}
    for record in records:
        key = (record["task"], record.get("subset"))
        for wanted, field_name, title in _COLUMNS:
            if key == wanted and record.get(field_name) is not None:
                columns.setdefault(title, {})[record["label"]] = record[field_name]
    return columns


_COLUMNS = (
    (("sits", "all"), "pearson", "CxC SITS Pearson"),
    (("sits", "c2i_intrasim"), "pearson", "CxC SITS non-GT Pearson"),
    (("sts_sampled", "all"), "sampled_spearman", "CxC STS sampled"),
    (("stsb", "test"), "spearman", "stsb Spearman"),
)
"""Task and subset of a record, its figure, and the title of its column."""


def _cxc(project: Project, judged: dict[str, Manifest], files: Sequence[Path] = ()) -> tuple[Report, ReportFiles]:
    from relabel.core.tables import csv_text
    from relabel.judge.calibration import agreement_points, calibration_points
    from relabel.judge.cxc_report import PairScores, cxc_report
    from relabel.judge.cxc_sampled import sampled_report
    from relabel.judge.external_scores import read_scores
    from relabel.judge.plot import draw

    params = project.config.judge
    scores = [PairScores.open(stages.judgement_folder(project, label), m.facts) for label, m in judged.items()]
    scores += [read_scores(path, params.split) for path in files]
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
