"""correlate: the agreement of labels with human judgement, in one report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from relabel import stages
from relabel.core.errors import MissingError, RelabelError, UsageError
from relabel.datasets.judged import set_names
from relabel.judge.judged_report import Cost, encoded_columns, summary_report
from relabel.judge.judged_scores import ScoreFunction
from relabel.judge.report import Report, ReportFiles, metrics, write_report
from relabel.stages import Project
from relabel.stages.judge import check_judged
from relabel.stages.judged_sets import JudgingRequest, SetResults, judge_sets, open_sets
from relabel.store.manifest import MANIFEST, Manifest

Against = str
"""Name of a judged set ("cxc", "eccv", or one of `relabel.datasets.judged.set_names`), a file, or "all"."""
ALL_SETS = "all"
"""Stands for every set whose files are on this machine."""
Draw = Callable[[Path], None]
ENCODED: tuple[Against, ...] = ("cxc", "eccv")
"""Sets that judge encodings of COCO's captions. All others have texts of their own."""


def judged_names() -> tuple[str, ...]:
    """Return the names of all judged sets."""
    return (*ENCODED, *set_names())


@dataclass
class EvaluationResult:
    """Report of several labels, with the labels that are missing from it.

    `problems`: list of (str, RelabelError); labels that could not be built, each with its error.
    `paths`: written files and folders, by their description.
    `draw`: draws the picture of the report into the file it is given.
    """

    report: Report = field(default_factory=lambda: Report((), ()))
    problems: list[tuple[str, RelabelError]] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)
    draw: Draw | None = None


def correlate(
    project: Project,
    labels: Sequence[str],
    against: Sequence[Against],
    scores: Sequence[Path] = (),
    functions: Mapping[str, ScoreFunction] = MappingProxyType({}),
    *,
    allow_missing: bool = False,
) -> EvaluationResult:
    """Compare labels with human judgement; write tables and pictures.

    Encodings and judgements that do not exist yet are built. A label that lacks something (Java, a model, vectors) is
    left out and listed in the result. `report/SPLIT` holds the report of all labels of the parameter file; any other
    report has a folder of its own beside it.

    `labels`: names in params.yaml; all if empty. `against`: names of judged sets (see `judged_names`), or files of
    judgements (see `relabel.datasets.judged_file`). Crisscrossed Captions and ECCV Caption judge encodings of COCO's
    captions; all others have texts of their own, and are shown with a table of all sets. "all" stands for every set
    whose files are on this machine; the others are named in a note. If empty, labels are encoded and not judged.
    `scores`: files of scores that were computed elsewhere for the pairs of the one set in `against`, judged under the
    name of the file (see `relabel.judge.judged_scores`). With such files, `labels` may be empty, which then stands for
    no label. `functions`: functions of texts by name, judged beside the labels on sets of texts (see
    `relabel.judge.judged_scores.score_with_function`). With functions, too, empty `labels` stand for no label.
    `allow_missing`: accept files of scores that lack judged pairs.
    """
    everything = ALL_SETS in against
    applicable, absent = _applicable_sets(project) if everything else ([], [])
    # Files may be named beside "all".
    against = [name for name in dict.fromkeys((*applicable, *against)) if name != ALL_SETS]
    if "eccv" in against and project.config.judge.split != "test":
        raise UsageError("ECCV Caption covers the test split only", todo="Use --split test.")
    _check_scores(scores, against)
    sets = open_sets(project, [name for name in against if name not in ENCODED], judged_names())
    result = EvaluationResult()
    names = list(labels) or ([] if scores or functions else list(project.config.sources))
    if not against or {*ENCODED} & {*against}:
        _judge_encodings(project, labels, names, against, scores, allow_missing, result)
    if not sets:
        return result
    results = judge_sets(project, JudgingRequest(names, functions, scores, allow_missing), sets)
    # "all" takes the sets that are at hand; a set that is asked for by name must be there.
    missing = [
        one for one in results.problems if everything and one[0] in set_names() and isinstance(one[1], MissingError)
    ]
    absent += [f"Not judged: {name} ({error})" for name, error in missing]
    result.problems += [one for one in results.problems if one not in missing]
    if not results.columns and not result.report.tables:
        raise _nothing_judged(names, result.problems or missing)
    summary = _summarise(result, results, absent)
    if everything:
        for note in absent:
            project.runtime.progress.note(note)
        folder = project.layout.report(project.config.judge.split)
        if is_complete(project, labels):
            files = ReportFiles({}, {"judged.png": _drawn(result)})
            _write(project, folder, "judged", results.report + summary, files, {})
            result.paths["tables, pictures"] = folder
    return result


def _applicable_sets(project: Project) -> tuple[list[Against], list[str]]:
    """Return the sets that can judge this dataset and split, and a note about each of the others."""
    if project.namespace != "coco":
        note = f"Not judged: cxc and eccv, which judge COCO's captions, not {project.config.ingest.dataset}'s."
        return list(set_names()), [note]
    if project.config.judge.split != "test":
        return ["cxc", *set_names()], ["Not judged: eccv, which covers the test split only."]
    return list(judged_names()), []


def _check_scores(scores: Sequence[Path], against: Sequence[Against]) -> None:
    """Raise if files of scores are not for one set of pairs."""
    if scores and (len(against) != 1 or against == ["eccv"]):
        problem = "--scores has the scores of one judged set of pairs"
        todo = (
            "Name that set: --on NAME. ECCV Caption ranks all pairs: use a label of `vectors` for a model's embeddings."
        )
        raise UsageError(problem, todo=todo)


def _judge_encodings(
    project: Project,
    labels: Sequence[str],
    names: Sequence[str],
    against: Sequence[Against],
    scores: Sequence[Path],
    allow_missing: bool,
    result: EvaluationResult,
) -> None:
    """Build labels, and report them on CxC and ECCV Caption."""
    if names and against:
        check_judged(project)
    if project.config.judge.gate:
        project.config.source(project.config.judge.gate)
    specs = {label: project.config.source(label).spec for label in names}
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
    folder, complete = project.layout.report(project.config.judge.split), is_complete(project, labels)
    if "cxc" in against:
        report, files = _cxc(project, judged, scores, allow_missing)
        result.report += report
        result.draw = files.pictures["cxc.png"]
        # Files of scores have no fingerprint, so the report of record holds labels alone.
        if complete and not scores:
            _write(project, folder, "cxc", report, files, judged)
            result.paths["tables, pictures"] = folder
    if "eccv" in against and judged:
        report, files = _eccv(project, judged, against)
        if complete:
            _write(project, folder, "eccv", report, files, judged)
            result.paths["tables, pictures"] = folder
        result.report += report


def is_complete(project: Project, labels: Sequence[str]) -> bool:
    """Return whether a report is that of the parameter file: of all its labels, and without options."""
    config, blocks = project.config, {"sources", "judge"}
    every = not labels or set(labels) == set(config.file.sources)
    return every and config.model_dump(include=blocks) == config.file.model_dump(include=blocks)


def _summarise(result: EvaluationResult, results: SetResults, absent: Sequence[str]) -> Report:
    """Add the tables of sets of texts, and the table and picture of all sets, to the result; return that table."""
    from relabel.judge.plot import draw_summary

    columns = [*encoded_columns(result.report.records), *results.columns]
    costs = {name: Cost.of(scored) for name, scored in results.costs.items()}
    summary = summary_report(columns, costs, absent)
    result.report += results.report + summary
    result.draw = partial(draw_summary, columns, costs)
    return summary


def _nothing_judged(labels: Sequence[str], problems: Sequence[tuple[str, RelabelError]]) -> RelabelError:
    """Return the first error of a report without a figure."""
    if problems:
        return problems[0][1]
    return UsageError(f"{', '.join(labels)}: cannot score texts", todo="Name a label that reads texts, such as sbert.")


def _drawn(result: EvaluationResult) -> Draw:
    assert result.draw is not None, "a report with a table of all sets has its picture"
    return result.draw


def _build_label(project: Project, label: str, judge: bool) -> Manifest:
    """Build the encoding of a label and, if asked, its judgement; return the manifest of the last one."""
    if not (project.layout.corpus / MANIFEST).exists():
        stages.fetch_and_ingest(project)
    params = project.config.judge
    encoding = stages.build_encoding(project, label, params.split)
    if judge and params.gate and params.split == "test" and project.config.source(label).is_pairwise():
        stages.build_encoding(project, params.gate, params.split)
    return stages.judge(project, label).build() if judge else encoding


def _cxc(
    project: Project, judged: dict[str, Manifest], files: Sequence[Path], allow_missing: bool
) -> tuple[Report, ReportFiles]:
    from relabel.core.tables import csv_text
    from relabel.judge.calibration import agreement_points, calibration_points
    from relabel.judge.cxc_report import PairScores, cxc_report
    from relabel.judge.cxc_sampled import sampled_report
    from relabel.judge.judged_scores import read_cxc_scores
    from relabel.judge.plot import draw

    params = project.config.judge
    scores = [PairScores.open(project.layout.judgement(params.split, label), m.facts) for label, m in judged.items()]
    scores += [read_cxc_scores(path, params.split, allow_missing) for path in files]
    progress, threads = project.runtime.progress, project.runtime.threads
    report = cxc_report(scores, params.resamples, params.seed, progress, threads)
    sampled = sampled_report(scores, params.draws, params.seed, params.draw_side, params.draw_unit, progress)
    points = {"agreement": agreement_points(report.records), "calibration": calibration_points(scores)}
    texts = {f"cxc.{name}.csv": csv_text(rows) + "\n" for name, rows in points.items()}
    return report + sampled, ReportFiles(texts, {"cxc.png": partial(draw, scores, report.records)})


def _eccv(project: Project, judged: dict[str, Manifest], against: Sequence[Against]) -> tuple[Report, ReportFiles]:
    from relabel.judge.eccv_report import QueryScores, eccv_report

    scores = [
        QueryScores.open(project.layout.judgement(project.config.judge.split, label), m.facts)
        for label, m in judged.items()
    ]
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


def _write(
    project: Project, out: Path, name: str, report: Report, files: ReportFiles, judged: dict[str, Manifest]
) -> None:
    """Write a report in every form."""
    forms = {"csv": report.render("csv"), "md": report.render("md"), "tex": report.render("latex")}
    forms["json"] = json.dumps(metrics(report.records), indent=1)
    texts = {f"{name}.{form}": text + "\n" for form, text in forms.items()} | files.texts
    write_report(out, name, ReportFiles(texts, files.pictures), judged, project.runtime.progress)
