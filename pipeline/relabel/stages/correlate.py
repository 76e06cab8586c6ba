"""correlate: the agreement of labels with human judgement, in one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from relabel.core.errors import MissingError, RelabelError, UsageError
from relabel.core.tables import csv_text
from relabel.datasets.judged import set_names
from relabel.judge.calibration import agreement_points
from relabel.judge.compare import compare
from relabel.judge.cxc_report import CxcFigures, PairScores, baseline, cxc_report
from relabel.judge.cxc_sampled import sampled_report
from relabel.judge.eccv_report import Ranking, eccv_report
from relabel.judge.judged_report import Cost, encoded_columns, summary_report
from relabel.judge.judged_scores import ScoreFunction, read_cxc_scores
from relabel.judge.notes import BASELINE
from relabel.judge.report import Report, report_texts
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import Job
from relabel.stages.judge import check_judged, figures, is_ranked, open_scores, ranking
from relabel.stages.judged_sets import SetResults, judge_sets, open_sets
from relabel.stages.project import Project
from relabel.stages.steps import build_steps, label_steps
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST
from relabel.store.workdir import Work

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
    """Compare labels with human judgement.

    Encodings, judgements and figures that do not exist yet are built. A label that lacks something (Java, a model,
    vectors) is left out and listed in the result. The report of all labels of the parameter file, without options, is
    written to `report/SPLIT`.

    `labels`: names in params.yaml; all if empty. `against`: names of judged sets (see `judged_names`), or files of
    judgements (see `relabel.datasets.judged_file`). Crisscrossed Captions and ECCV Caption judge encodings of COCO's
    captions; all others have texts of their own, and are shown with a table of all sets. "all" stands for every set
    whose files are on this machine; the others are named in a note. `scores`: files of scores that were computed
    elsewhere for the pairs of the one set in `against`, judged under the name of the file (see
    `relabel.judge.judged_scores`). With such files, `labels` may be empty, which then stands for no label. `functions`:
    functions of texts by name, judged beside the labels on sets of texts (see
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
    result, encoded = EvaluationResult(), [name for name in against if name in ENCODED]
    names = list(labels) or ([] if scores or functions else list(project.config.sources))
    if encoded:
        if names:
            check_judged(project)
            if not (project.layout.corpus / MANIFEST).exists():
                fetch_and_ingest(project)
        judged = build_labels(project, names, project.config.judge.split, encoded, result)
        outside = [read_cxc_scores(path, project.config.judge.split, allow_missing) for path in scores]
        # Files of scores have no fingerprint, so the report of record holds labels alone.
        complete = is_complete(project, labels) and not scores
        report_encoded(project, judged, encoded, result, complete, outside)
        if against == ["eccv"] and not result.report.tables:
            raise _not_ranked(judged)
    if not sets:
        return result
    results = judge_sets(project, sets, names, functions, scores, allow_missing=allow_missing)
    # "all" takes the sets that are at hand; a set that is asked for by name must be there.
    missing = [
        one for one in results.problems if everything and one[0] in set_names() and isinstance(one[1], MissingError)
    ]
    absent += [f"Not judged: {name} ({error})" for name, error in missing]
    result.problems += [one for one in results.problems if one not in missing]
    if not results.columns and not result.report.tables:
        raise _nothing_judged(names, result.problems or missing)
    _add_sets(project, result, results, absent, complete=everything and is_complete(project, labels))
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


def build_labels(
    project: Project, names: Sequence[str], split: str, against: Sequence[Against], result: EvaluationResult
) -> list[str]:
    """Build encodings and judgements of labels; return the labels without a problem, after the baseline.

    `against`: "cxc" and "eccv".
    """
    names = with_baseline(project, names, against)
    problems = build_steps(label_steps(project, names, split, against))
    result.problems += problems
    built = [name for name in names if name not in {label for label, _ in problems}]
    if problems and not {*built} - {BASELINE}:
        raise problems[0][1]
    return built


def with_baseline(project: Project, labels: Sequence[str], against: Sequence[Against]) -> list[str]:
    """Return labels that are judged on CxC with the baseline, the others as they are.

    The baseline shows how much of a correlation comes from the difference between GT and non-GT pairs alone.
    """
    lacking = "cxc" in against and labels and all(project.config.params(name).source != BASELINE for name in labels)
    return [BASELINE, *labels] if lacking else [*labels]


def report_encoded(
    project: Project,
    labels: Sequence[str],
    against: Sequence[Against],
    result: EvaluationResult,
    complete: bool,
    scores: Sequence[PairScores] = (),
) -> None:
    """Add the tables of labels that are built to the result.

    `complete`: whether this is the report of the parameter file, which is written. `scores`: of other programs, for
    CxC's pairs.
    """
    folder = project.layout.report(project.config.judge.split)
    if "cxc" in against:
        params = project.config.judge
        # Without a label, the baseline is that of the pairs in the file.
        others = [*scores] if labels else [baseline(scores[0]), *scores]
        jobs = {f"figures {label}": figures(project, label) for label in labels}
        compared = [CxcFigures.open(job.out, job.open().facts) for job in jobs.values()]
        compared += [compare(scored, params, project.runtime.progress, project.runtime.threads) for scored in others]
        report = cxc_report(compared, params.resamples, params.seed)
        report += sampled_report(compared, params.draws, params.seed)
        result.report += report
        result.draw = partial(_draw_pairs, project, labels, others, report)
        if complete:
            points = {"agreement": agreement_points(report.records)}
            points["calibration"] = [point for one in compared for point in one.calibration]
            texts = {f"cxc.{name}.csv": csv_text(rows) + "\n" for name, rows in points.items()}
            _write(project, "cxc", report, jobs, texts, {"cxc.png": result.draw})
            result.paths["tables, pictures"] = folder
    if "eccv" in against and labels:
        rankings = {label: ranking(project, label) for label in labels if is_ranked(project, label)}
        report = eccv_report(
            [Ranking.of(job.open().facts) for job in rankings.values()],
            [label for label in labels if label not in rankings],
        )
        result.report += report
        if not rankings:
            project.runtime.progress.note(str(_not_ranked(labels)))
        elif complete:
            _write(project, "eccv", report, {f"ranking {label}": job for label, job in rankings.items()})
            result.paths["tables, pictures"] = folder


def is_complete(project: Project, labels: Sequence[str]) -> bool:
    """Return whether a report is that of the parameter file: of all its labels, and maybe others, without options."""
    config, file = project.config, project.config.file
    # The split is in the path of the report.
    judge = file.judge.model_copy(update={"split": config.judge.split})
    return (not labels or {*labels} >= {*file.sources}) and (config.sources, config.judge) == (file.sources, judge)


def _draw_pairs(
    project: Project, labels: Sequence[str], scores: Sequence[PairScores], report: Report, path: Path
) -> None:
    from relabel.judge.plot import draw

    draw([*(open_scores(project, label) for label in labels), *scores], report.records, path)


def _write(
    project: Project,
    name: str,
    report: Report,
    made_of: Mapping[str, Job],
    texts: Mapping[str, str] = MappingProxyType({}),
    pictures: Mapping[str, Draw] = MappingProxyType({}),
) -> None:
    """Write the files of a report, unless they are there and of the same figures."""
    texts = {**report_texts(name, report), **texts}

    def fill(work: Work) -> None:
        for file, text in texts.items():
            # Bytes, since text mode may change line ends.
            work.file(file, partial(Path.write_bytes, data=text.encode()))
        for file, draw in pictures.items():
            work.file(file, draw)

    semantic = {"labels": list(made_of), "notes": [table.notes for table in report.tables]}
    inputs: Inputs = {entry: job.identity for entry, job in made_of.items()}
    out = project.layout.report(project.config.judge.split, name)
    Job(project, out, Recipe("report", name, lambda: semantic, inputs, fill), project.command("correlate")).build()


def _add_sets(
    project: Project, result: EvaluationResult, results: SetResults, absent: Sequence[str], complete: bool
) -> None:
    """Add the tables of sets of texts, and the table and picture of all sets, to the result."""
    from relabel.judge.plot import draw_summary

    columns = [*encoded_columns(result.report.records), *results.columns]
    costs = {name: Cost.of(scored) for name, scored in results.costs.items()}
    summary = results.report + summary_report(columns, costs, absent)
    result.report += summary
    result.draw = partial(draw_summary, columns, costs)
    for note in absent:
        project.runtime.progress.note(note)
    if complete:
        _write(project, "judged", summary, results.made_of, {}, {"judged.png": result.draw})
        result.paths["tables, pictures"] = project.layout.report(project.config.judge.split)


def _nothing_judged(labels: Sequence[str], problems: Sequence[tuple[str, RelabelError]]) -> RelabelError:
    """Return the first error of a report without a figure."""
    if problems:
        return problems[0][1]
    return UsageError(f"{', '.join(labels)}: cannot score texts", todo="Name a label that reads texts, such as sbert.")


def _not_ranked(labels: Sequence[str]) -> UsageError:
    return UsageError(
        f"{', '.join(labels)}: not ranked on ECCV Caption, which takes all pairs, since they score pair by pair",
        todo="Use `--gate sbert` to re-rank the best candidates of sbert.",
    )
