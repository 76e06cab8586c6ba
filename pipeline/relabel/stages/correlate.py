"""correlate: the agreement of labels with human judgement, in one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core.errors import MissingError, RelabelError, UsageError
from relabel.core.numeric.statistics import Vector
from relabel.corpus import Corpus
from relabel.judge.calibration import calibration_report
from relabel.judge.cxc import sibling_std
from relabel.judge.cxc_figures import PairScores, baseline, compare
from relabel.judge.report import BASELINE, Draw, Judged, Report, write_report
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
from relabel.stages import judged
from relabel.stages.calibrate import calibration_steps, open_curves
from relabel.stages.ingest import fetch_and_ingest, read_captions
from relabel.stages.job import Job, Step
from relabel.stages.judged import TextSet
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST, read_manifest

Against = str
"""Name of an evaluation set ("cxc", "eccv", or one of `evaluation_sets.set_names`), a file, or "all"."""
Scored = dict[str, Vector]
"""Scores of the pairs of a set, by name."""
_RANKED = "ECCV Caption takes all pairs: `--gate sbert` re-ranks the best candidates of sbert by a label of pairs."


@dataclass
class EvaluationResult:
    """Report of several labels, with the labels that are missing from it.

    `write`: whether this is the report of the parameter file, which is written.
    `problems`: list of (str, RelabelError); labels that could not be judged, each with its error.
    `warnings`: list of (str, str); names of artefacts, each with a warning.
    `paths`: written files and folders, by their description. `lookups`, `pages`: those of `run` and `report`.
    `rates`: by label, captions that `run` encoded per second.
    `draw`: draws the picture of the report into the file it is given.
    `made_of`: jobs of the figures.
    `costs`: by label, the costs of each set of texts.
    """

    session: Session
    write: bool = False
    report: Report = field(default_factory=Report)
    problems: list[tuple[str, RelabelError]] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)
    lookups: list[Path] = field(default_factory=list)
    pages: list[Path] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    draw: Draw | None = None
    made_of: dict[str, Job] = field(default_factory=dict)
    costs: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        """All records, notes and warnings, for JSON."""
        return self.report.data | {"warnings": [{"name": name, "warning": text} for name, text in self.warnings]}

    def build(self, steps: Iterable[Step]) -> None:
        """Build artefacts in order. A label that lacks something is left out, with the error among the problems."""
        done, failed = set[Path](), {label for label, _ in self.problems}
        for step in steps:
            # Several labels may have a part in common.
            if step.label in failed or step.out in done:
                continue
            try:
                manifest, _ = step.prepare().run()
                self.warnings += [(step.name, text) for text in manifest.warnings]
                done.add(step.out)
            except RelabelError as error:
                failed.add(step.label)
                self.problems.append((step.label, error))

    def build_labels(self, names: Sequence[str], split: str, against: Sequence[Against]) -> list[str]:
        """Build encodings and judgements of labels; return the labels without a problem.

        If only the baseline is among them, the first problem is raised. `against`: "cxc" and "eccv".
        """
        self.build(judged.label_steps(self.session, names, split, against))
        self.build(calibration_steps(self.session, names, against))
        failed = dict(self.problems)
        if failed and not {*names} - {*failed, BASELINE}:
            raise self.problems[0][1]
        return [name for name in names if name not in failed]

    def add_encoded(self, labels: Sequence[str], against: Sequence[Against], scores: Sequence[PairScores] = ()) -> None:
        """Add the tables of labels that are built, on CxC and ECCV Caption.

        `scores`: of other programs, for CxC's pairs.
        """
        session, params, runtime = self.session, self.session.config.judge, self.session.runtime
        if "cxc" in against:
            # Without a label, the baseline is that of the pairs in the file.
            others = [*scores] if labels else [baseline(scores[0]), *scores]
            jobs = {f"figures {label}": judged.figures(session, label) for label in labels}
            compared = [_figures(job) for job in jobs.values()]
            compared += [compare(scored, params, runtime.progress, runtime.threads) for scored in others]
            spreads = {label: sibling_std(judged.judge(session, label).out) for label in labels}
            report = cxc_report(compared, params, spreads)
            report += calibration_report(open_curves(session, labels, scores))

            def draw(path: Path) -> None:
                from relabel.judge import plot

                plot.draw([*(judged.open_scores(session, label) for label in labels), *others], report.records, path)

            self._add("cxc", report, jobs, draw)
        if "eccv" in against:
            unranked = [label for label in labels if not judged.is_ranked(session, label)]
            jobs = {f"ranking {label}": judged.ranking(session, label) for label in labels if label not in unranked}
            if unranked and not jobs:
                runtime.progress.note(f"{', '.join(unranked)}: not ranked. {_RANKED}")
            self._add("eccv", eccv_report([_figures(job) for job in jobs.values()], unranked), jobs)

    def read_sets(self, sets: Sequence[TextSet], others: Callable[[TextSet], Scored] = lambda _: {}) -> Report:
        """Return the tables of sets of texts, and note the figures and the costs of labels.

        The tables have the labels that have been judged on a set. `others`: returns more scores of a set, by name.
        """
        report, params = Report(), self.session.config.judge
        for texts in sets:
            # A source that cannot take new texts has no fault. The report says why it is left out.
            left_out = {one.label: one.reason for one in texts.labels if one.reason}
            found = list[Judged]()
            for one in (one for one in texts.labels if not one.reason):
                # A label that could not be judged is among the problems. A page shows what was judged before.
                with suppress(RelabelError):
                    found.append(_figures(one.figures))
                    self.made_of[f"{texts.judged.name} {one.label}"] = one.figures
                    self.costs.setdefault(one.label, []).append(read_manifest(one.scores.out).provenance["cost"])
            found += [texts.compare(external_label(name), scored) for name, scored in others(texts).items()]
            report += set_report(texts.judged, found, left_out, params)
        return report

    def add_sets(self, report: Report, sets: Sequence[TextSet], absent: Mapping[str, RelabelError]) -> None:
        """Add the tables of sets of texts, and the table and picture of all sets."""
        from relabel.judge.plot import draw_summary

        records, judged_sets = [*self.report.records, *report.records], [texts.judged for texts in sets]
        columns = headline_columns(records, judged_sets)
        costs = {name: Cost.of(scored) for name, scored in self.costs.items()}
        notes = [f"Not judged: {name} ({error})" for name, error in absent.items()]
        for note in notes:
            self.session.runtime.progress.note(note)
        report += reproduction_report(records, judged_sets) + summary_report(columns, costs, notes)
        self._add("judged", report, self.made_of, partial(draw_summary, columns, costs))

    def _add(self, name: str, report: Report, made_of: Mapping[str, Job], draw: Draw | None = None) -> None:
        """Add a report, and write its files, unless they are there and of the same figures."""
        self.report += report
        self.made_of |= made_of
        self.draw = draw or self.draw
        if not self.write or not report.tables:
            return
        config = {"labels": list(made_of), "notes": [table.notes for table in report.tables]}
        config["rows"] = [table.rows for table in report.tables]
        inputs: Inputs = {**made_of}
        folder = self.session.folder("report", self.session.config.judge.split)
        recipe = Recipe("report", name, lambda: config, inputs, partial(write_report, name, report, draw))
        Job(self.session, folder / name, recipe, self.session.command("correlate")).run()
        self.paths["tables, pictures"] = folder


def _figures(job: Job) -> Judged:
    job.open()
    return Judged.read(job.out)


def correlate(
    session: Session,
    labels: Sequence[str],
    against: Sequence[Against],
    scores: Sequence[Path] = (),
    functions: Sequence[TextFunction] = (),
    *,
    allow_missing: bool = False,
) -> EvaluationResult:
    """Compare labels with human judgement.

    Encodings, judgements and figures that do not exist yet are built. A label that lacks something (Java, a model,
    vectors) is left out and listed in the result. The report of all labels of the parameters is written to
    `report/SPLIT`.

    `labels`: names in params.yaml; all if empty. `against`: names of evaluation sets (see `judged_names`), or files of
    judgements (see `relabel.datasets.evaluation_file`). Crisscrossed Captions and ECCV Caption judge encodings of
    COCO's captions; all others have texts of their own, and are shown with a table of all sets. "all" stands for every
    set whose files are on this machine; the others are named in a note. `scores`: files of scores that were computed
    elsewhere for the pairs of the one set in `against`, judged under the name of the file (see `relabel.judge.scores`).
    With such files, `labels` may be empty, which then stands for no label. `functions`: functions of texts,
    judged beside the labels on CxC and sets of texts (see `relabel.judge.scores`). With functions, too, empty `labels`
    stand for no label. `allow_missing`: accept files of scores that lack judged pairs.
    """
    names = list(labels) or ([] if scores or functions else session.available(session.config.sources))
    for name in names:
        session.config.parts(name)  # raises if the label is made of itself
    everything = "all" in against
    # One order of tables, however the sets were named; files come last, also beside "all".
    known = [name for name in judged.judged_names() if everything or name in against]
    chosen = [name for name in dict.fromkeys([*known, *against]) if name != "all"]
    if scores and (len(chosen) != 1 or chosen == ["eccv"]):
        todo = "Name that set: --on NAME. ECCV Caption ranks all pairs: use `vectors` for a model's embeddings."
        raise UsageError("--scores has the scores of one evaluation set of pairs", todo=todo)
    encoded, sets, absent = list[str](), list[TextSet](), dict[str, RelabelError]()
    captions: Corpus | None = None
    for name in chosen:
        try:
            if name not in judged.ENCODED:
                sets.append(judged.open_set(session, name, names))
                continue
            if functions and name == "eccv" and (name in against or not names):
                todo = "Judge it on a set of texts, such as flickr8k-expert, or on a file of judgements."
                raise UsageError(f"a function of texts cannot be judged on {name}", todo=todo)
            if names or functions:
                judged.check_judged(session, name)
            if functions and not names:
                captions = read_captions(session)
            encoded.append(name)
        except (MissingError, UsageError) as error:
            # "all" takes the sets that are at hand and apply; a set that is asked for by name must be there.
            if name in against:
                raise
            absent[name] = error
    # Files of scores and functions have no fingerprint, so the report of record holds labels alone.
    result = EvaluationResult(session, is_complete(session, labels) and not scores and not functions)
    if encoded:
        split = session.config.judge.split
        if names and not session.folder("corpus", MANIFEST).exists():
            fetch_and_ingest(session)
        built = result.build_labels(with_baseline(session, names, encoded), split, encoded)
        params, progress = session.config.judge, session.runtime.progress
        others = [read_cxc_scores(path, split, allow_missing) for path in scores]
        if "cxc" in encoded:
            others += [score_cxc_with_function(captions or session.corpus, one, params, progress) for one in functions]
        result.add_encoded(built, encoded, others)

    def scored_by_others(texts: TextSet) -> Scored:
        judgements = texts.judgements
        scored = {function.name: score_with_function(judgements, function) for function in functions}
        # A file of scores is given for one set, so a fault in it ends the command.
        return scored | {path.stem: read_pair_scores(path, texts.judged, judgements, allow_missing) for path in scores}

    result.build(judged.set_steps(sets))
    texts = result.read_sets(sets, scored_by_others)
    if not result.report.records and not texts.records:
        todo = _RANKED if "eccv" in chosen else "Name a label that reads texts, such as sbert."
        refused = UsageError(f"{', '.join(names)}: cannot be judged on {', '.join(chosen)}", todo=todo)
        raise next(iter((*dict(result.problems).values(), *absent.values())), refused)
    if sets or absent:
        result.write &= everything
        result.add_sets(texts, sets, absent)
    return result


def with_baseline(session: Session, labels: Sequence[str], against: Sequence[Against]) -> list[str]:
    """Return labels that are judged on CxC with the baseline, the others as they are.

    The baseline shows how much of a correlation comes from the difference between GT and non-GT pairs alone.
    """
    lacking = "cxc" in against and labels and all(session.config.params(name).source != BASELINE for name in labels)
    return [BASELINE, *labels] if lacking else [*labels]


def is_complete(session: Session, labels: Sequence[str]) -> bool:
    """Return whether a report has all labels of the parameters that are available, and maybe others."""
    return not labels or {*labels} >= {*session.available(session.config.sources)}
