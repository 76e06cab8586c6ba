"""correlate: reports the agreement of labels with human judgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from relabel.core.errors import MissingError, RelabelError, UsageError
from relabel.core.numeric.statistics import Vector
from relabel.corpus import Corpus
from relabel.judge.calibration import calibration_report
from relabel.judge.cxc import sibling_std
from relabel.judge.cxc_figures import PairScores, baseline, compare
from relabel.judge.report import BASELINE, LabelFigures, Record, Report, write_report
from relabel.judge.scores import (
    TextFunction,
    external_label,
    read_cxc_scores,
    read_pair_scores,
    score_cxc_with_function,
    score_with_function,
)
from relabel.judge.tables import (
    Cost,
    cxc_report,
    eccv_report,
    headline_columns,
    reproduction_report,
    set_report,
    summary_report,
)
from relabel.stages.calibrate import calibration_jobs, check_curves
from relabel.stages.corpus import open_corpus, read_captions
from relabel.stages.encode import available_labels, missing_files
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import Job, Outcome, run_jobs
from relabel.stages.judged import (
    ENCODED,
    check_judged,
    figures,
    is_ranked,
    judgement,
    label_jobs,
    open_scores,
    ranking,
)
from relabel.stages.session import Session
from relabel.stages.text_sets import TextSet, compare_scores, judged_names, open_set, set_jobs
from relabel.store.artefact import Recipe
from relabel.store.manifest import MANIFEST, read_manifest

Against = str
"""Name of an evaluation set ("cxc", "eccv", or one of `evaluation_sets.set_names`), a file, or "all"."""
_RANKED = "ECCV Caption compares all pairs. With `--gate sbert`, a slow label re-ranks the best candidates of sbert."


@dataclass
class EvaluationResult(Outcome):
    """Agreement of labels with human judgements."""

    report: Report = field(default_factory=Report)


@dataclass(frozen=True)
class Section:
    """Part of a report with separate files.

    `name`: "cxc", "eccv" or "judged", the name of its files.
    `inputs`: jobs that computed its figures.
    """

    name: str
    report: Report
    inputs: Mapping[str, Job]


@dataclass
class _EvaluationSets:
    """Evaluation sets on which labels can be judged.

    `encoded`: "cxc" and "eccv".
    `sets`: sets of texts.
    `absent`: sets that "all" leaves out, with the reasons.
    `captions`: captions for functions to score if there are no labels.
    """

    encoded: list[str] = field(default_factory=list)
    sets: list[TextSet] = field(default_factory=list)
    absent: dict[str, RelabelError] = field(default_factory=dict)
    captions: Corpus | None = None


def correlate(
    session: Session,
    labels: Sequence[str],
    against: Sequence[Against],
    scores: Sequence[Path] = (),
    functions: Sequence[TextFunction] = (),
    *,
    allow_missing: bool = False,
) -> EvaluationResult:
    """Compare labels with human judgements.

    Missing encodings, judgements and figures are built. A label that lacks something, such as Java, a model or vectors,
    is left out and listed in the result. If all labels of the parameters are judged, the report is written to
    `report/SPLIT`.

    `labels`: names in params.yaml. If empty, all labels, or none if there are `scores` or `functions`. `against`: names
    of evaluation sets (see `judged_names`), or files of judgements (see `relabel.datasets.evaluation_file`).
    Crisscrossed Captions and ECCV Caption use encodings of COCO's captions. All other sets have their own texts, and
    are shown with a table of all sets. "all" selects every set with its files on this machine; a note lists the rest.
    `scores`: files of scores for the pairs of the only set in `against`, reported under the name of the file (see
    `relabel.judge.scores`). `functions`: functions of texts, judged with the labels on CxC and sets of texts.
    `allow_missing`: accept files of scores that lack judged pairs.
    """
    names = list(labels) or ([] if scores or functions else available_labels(session, session.config.sources))
    for name in names:
        session.config.parts(name)  # raises if the label is part of itself
    chosen = _chosen_sets(against, scores)
    opened = _open_sets(session, chosen, against, names, functions)
    # Scores from files and functions do not have a fingerprint, so they are not in the files of the report.
    written = is_complete(session, labels) and not scores and not functions
    result, sections = EvaluationResult(), list[Section]()
    if opened.encoded:
        if names and not session.folder("corpus", MANIFEST).exists():
            fetch_and_ingest(session)
        judge, progress = session.config.judge, session.runtime.progress
        wanted = with_baseline(session, names, opened.encoded)
        built = build_labels(session, wanted, judge.split, opened.encoded, result)
        external = [read_cxc_scores(path, judge.split, allow_missing) for path in scores]
        if functions and "cxc" in opened.encoded:
            captions = opened.captions or open_corpus(session)
            external += [score_cxc_with_function(captions, function, judge, progress) for function in functions]
        sections += encoded_sections(session, built, opened.encoded, external)
    if written:
        result.paths |= write_sections(session, sections)

    def scores_of(texts: TextSet) -> dict[str, Vector]:
        by_name = {function.name: score_with_function(texts.judgements, function) for function in functions}
        # Scores are for one set only, so an error in their file ends the command.
        for path in scores:
            by_name[path.stem] = read_pair_scores(path, texts.judged, texts.judgements, allow_missing)
        return by_name

    run_jobs(set_jobs(session, opened.sets), result)
    texts = texts_section(session, opened.sets, scores_of)
    if not any(section.report.records for section in (*sections, texts)):
        hint = _RANKED if "eccv" in chosen else "Use a label that reads texts, such as sbert."
        unjudged = UsageError(f"{', '.join(names)}: cannot be evaluated on {', '.join(chosen)}", hint=hint)
        raise next(iter((*dict(result.problems).values(), *opened.absent.values())), unjudged)
    if opened.sets or opened.absent:
        records = [record for section in sections for record in section.report.records]
        summary = _with_summary(session, texts, records, opened)
        sections.append(summary)
        if written and "all" in against:
            result.paths |= write_sections(session, [summary])
    result.report = total_report(sections)
    return result


def _chosen_sets(against: Sequence[Against], scores: Sequence[Path]) -> list[str]:
    """Return the selected sets without duplicates, in a fixed order, followed by files."""
    named = [name for name in judged_names() if "all" in against or name in against]
    chosen = [name for name in dict.fromkeys([*named, *against]) if name != "all"]
    if scores and (len(chosen) != 1 or chosen == ["eccv"]):
        hint = "Select the set with --on NAME. ECCV Caption ranks all pairs: use `vectors` for a model's embeddings."
        raise UsageError("--scores needs exactly one evaluation set of pairs", hint=hint)
    return chosen


def _open_sets(
    session: Session,
    chosen: Sequence[str],
    against: Sequence[Against],
    labels: Sequence[str],
    functions: Sequence[TextFunction],
) -> _EvaluationSets:
    """Open the sets of texts, and check that CxC and ECCV Caption judge the captions of the session."""
    opened = _EvaluationSets()
    for name in chosen:
        try:
            if name not in ENCODED:
                opened.sets.append(open_set(session, name, labels))
                continue
            if functions and name == "eccv" and (name in against or not labels):
                hint = "Use a set of texts, such as flickr8k-expert, or a file of judgements."
                raise UsageError(f"a function of texts cannot be evaluated on {name}", hint=hint)
            if labels or functions:
                check_judged(session, name)
            if functions and not labels:
                opened.captions = read_captions(session)
            opened.encoded.append(name)
        except (MissingError, UsageError) as error:
            # "all" skips sets that are missing or do not apply, but for a set that is named this is an error.
            if name in against:
                raise
            opened.absent[name] = error
    return opened


def build_labels(
    session: Session, names: Sequence[str], split: str, against: Sequence[Against], outcome: Outcome
) -> list[str]:
    """Build encodings and judgements of labels; return the labels that have no problems.

    If all labels except the baseline fail, the first problem is raised. `against`: "cxc" and "eccv".
    """
    run_jobs(label_jobs(session, names, split, against), outcome)
    run_jobs(calibration_jobs(session, names, against), outcome)
    failed = dict(outcome.problems)
    if failed and not {*names} - {*failed, BASELINE}:
        raise outcome.problems[0][1]
    return [name for name in names if name not in failed]


def encoded_sections(
    session: Session, labels: Sequence[str], against: Sequence[Against], scores: Sequence[PairScores] = ()
) -> list[Section]:
    """Return the tables of CxC and ECCV Caption for labels that are built.

    `scores`: scores of CxC's pairs from files and functions.
    """
    sections = [_cxc_section(session, labels, scores)] if "cxc" in against else []
    return [*sections, _eccv_section(session, labels)] if "eccv" in against else sections


def _cxc_section(session: Session, labels: Sequence[str], scores: Sequence[PairScores]) -> Section:
    params, runtime = session.config.judge, session.runtime
    jobs = {f"figures {label}": figures(session, label) for label in labels}
    # Without labels, the baseline uses the pairs of the first file.
    external = [*scores] if labels else [baseline(scores[0]), *scores]
    compared = [_read_figures(job) for job in jobs.values()]
    compared += [compare(scored, params, runtime.progress, runtime.threads) for scored in external]
    spreads = {label: sibling_std(judgement(session, label).out) for label in labels}
    report = cxc_report(compared, params, spreads)
    checked = check_curves(session, labels, scores)
    report += calibration_report(checked, params.split)

    def draw(path: Path) -> None:
        from relabel.judge import plot

        plot.draw([*(open_scores(session, label) for label in labels), *external], report.records, checked, path)

    return Section("cxc", replace(report, picture=draw), jobs)


def _eccv_section(session: Session, labels: Sequence[str]) -> Section:
    unranked = [label for label in labels if not is_ranked(session, label)]
    jobs = {f"ranking {label}": ranking(session, label) for label in labels if label not in unranked}
    if unranked and not jobs:
        session.note_once(f"{', '.join(unranked)}: not ranked. {_RANKED}")
    return Section("eccv", eccv_report([_read_figures(job) for job in jobs.values()], unranked), jobs)


def texts_section(
    session: Session, sets: Sequence[TextSet], scores_of: Callable[[TextSet], Mapping[str, Vector]] = lambda _: {}
) -> Section:
    """Return the tables of sets of texts, with the labels that were judged on each set.

    `scores_of`: returns additional scores of a set, by name.
    """
    report, jobs = Report(), dict[str, Job]()
    for texts in sets:
        # A source that cannot score new texts is not a problem; the report states the reason.
        left_out = {scored.label: scored.reason for scored in texts.labels if scored.reason}
        compared = list[LabelFigures]()
        for scored in (scored for scored in texts.labels if not scored.reason):
            # If a label cannot be judged, this is one of the problems, or a page shows only earlier figures.
            with suppress(RelabelError):
                compared.append(_read_figures(scored.figures))
                jobs[f"{texts.judged.name} {scored.label}"] = scored.figures
        for name, scores in scores_of(texts).items():
            compared.append(compare_scores(session, texts, external_label(name), scores))
        report += set_report(texts.judged, compared, left_out, session.config.judge)
    return Section("judged", report, jobs)


def _with_summary(session: Session, texts: Section, records: Sequence[Record], opened: _EvaluationSets) -> Section:
    """Add the table and the picture of all sets to the section of sets of texts.

    `records`: records of CxC and ECCV Caption.
    """
    from relabel.judge.plot import draw_summary

    costs = dict[str, list[Mapping[str, float]]]()
    for scored in (scored for one in opened.sets for scored in one.labels):
        if any(job is scored.figures for job in texts.inputs.values()):
            costs.setdefault(scored.label, []).append(read_manifest(scored.scores.out).provenance["cost"])
    notes = [f"Not judged: {name} ({error})" for name, error in opened.absent.items()]
    for note in notes:
        session.runtime.progress.note(note)
    all_records, judged_sets = [*records, *texts.report.records], [one.judged for one in opened.sets]
    columns, totals = headline_columns(all_records, judged_sets), {name: Cost.of(each) for name, each in costs.items()}
    report = texts.report + reproduction_report(all_records, judged_sets) + summary_report(columns, totals, notes)
    return replace(texts, report=replace(report, picture=partial(draw_summary, columns, totals)))


def total_report(sections: Iterable[Section]) -> Report:
    """Combine the reports of all sections. The picture is that of the last section with one."""
    return sum((section.report for section in sections), Report())


def write_sections(session: Session, sections: Iterable[Section]) -> dict[str, Path]:
    """Write the files of sections unless they are up to date; return their folder by its description."""
    jobs = [_report_files(session, section) for section in sections if section.report.tables]
    for job in jobs:
        job.run()
    return {"tables, pictures": jobs[0].out.parent} if jobs else {}


def _report_files(session: Session, section: Section) -> Job:
    tables = section.report.tables
    # Rows are part of the identity, because a calibration may use the shipped curve, and that is not an input.
    config = {"labels": list(section.inputs), "notes": [t.notes for t in tables], "rows": [t.rows for t in tables]}
    fill = partial(write_report, section.name, section.report)
    recipe = Recipe("report", section.name, lambda: config, {**section.inputs}, fill)
    out = session.folder("report", session.config.judge.split) / section.name
    return Job(session, out, recipe, session.command("correlate"))


def _read_figures(job: Job) -> LabelFigures:
    job.open()
    return LabelFigures.read(job.out)


def with_baseline(session: Session, labels: Sequence[str], against: Sequence[Against]) -> list[str]:
    """Add the baseline to labels that are judged on CxC; return others unchanged.

    The baseline shows how much of a correlation is due only to the difference between GT and non-GT pairs.
    """
    lacking = "cxc" in against and labels and all(session.config.params(name).source != BASELINE for name in labels)
    return [BASELINE, *labels] if lacking else [*labels]


def is_complete(session: Session, labels: Sequence[str]) -> bool:
    """Return True if a report has at least all available labels of the parameters."""
    return not labels or all(name in labels or missing_files(session, name) for name in session.config.sources)
