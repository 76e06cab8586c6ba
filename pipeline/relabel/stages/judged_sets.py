"""Agreement of labels, functions and files of scores with human-judged sets of texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from relabel import stages
from relabel.core.errors import RelabelError, UsageError, choices
from relabel.datasets.judged import JudgedSet, Judgements, judged_set, set_names
from relabel.datasets.judged_file import JUDGEMENT_FILES, judged_file
from relabel.judge.judged_figures import Figure, set_figures
from relabel.judge.judged_report import Column, set_column, set_report
from relabel.judge.judged_scores import ScoreFunction, read_pair_scores, score_judgements, score_with_function
from relabel.judge.report import Report
from relabel.sources.base import Source
from relabel.sources.texts import TextScores
from relabel.stages.project import Project
from relabel.store.manifest import MANIFEST


@dataclass(frozen=True)
class JudgingRequest:
    """The labels, functions and files of scores that are judged together.

    `functions`: by name (see `relabel.judge.judged_scores.score_with_function`).
    `scores`: files (see `relabel.judge.judged_scores`), named by their stems.
    `allow_missing`: accept files that lack pairs.
    """

    labels: Sequence[str]
    functions: Mapping[str, ScoreFunction] = field(default_factory=dict)
    scores: Sequence[Path] = ()
    allow_missing: bool = False


@dataclass
class SetResults:
    """Results on sets of texts.

    `report`: one table per set.
    `columns`: one per set, for the table of all sets.
    `costs`: by label, with the cost of each set.
    `problems`: list of (str, RelabelError); sets and labels that could not be judged, each with its error.
    """

    report: Report = field(default_factory=lambda: Report((), ()))
    columns: list[Column] = field(default_factory=list)
    costs: dict[str, list[TextScores]] = field(default_factory=dict)
    problems: list[tuple[str, RelabelError]] = field(default_factory=list)


def open_sets(project: Project, names: Sequence[str], known: Sequence[str]) -> list[JudgedSet]:
    """Open the named sets of texts, and the files of judgements.

    `project`: its captions stand for their ids in files of judgements. `known`: names of all sets, for the message.
    """
    opened = []
    for name in names:
        if name in set_names():
            opened.append(judged_set(name))
        elif Path(name).suffix in JUDGEMENT_FILES:
            opened.append(judged_file(Path(name), project.config.judge.statistic, _caption_texts(project)))
        else:
            todo = f"{choices(name, known)} Or name a file ({', '.join(JUDGEMENT_FILES)})."
            raise UsageError(f"no judged set {name!r}", todo=todo)
    return opened


def _caption_texts(project: Project) -> dict[str, str]:
    """Return the texts of the ingested corpus by caption id; none where nothing is ingested."""
    if not (project.layout.corpus / MANIFEST).exists():
        return {}
    corpus = project.corpus
    return dict(zip(corpus.caption_ids, corpus.texts, strict=True))


def judge_sets(project: Project, request: JudgingRequest, sets: Sequence[JudgedSet]) -> SetResults:
    """Judge labels, functions and files of scores on sets of texts.

    Scores and encodings of labels are kept in ``labels/DATASET/judged/SET`` and read by later calls. A set whose files
    are missing, and a label that lacks something, are left out and listed.
    """
    results = SetResults()
    for one in sets:
        try:
            # A set without files must not cost the results of the other sets, so errors are listed rather than raised.
            judgements = one.open(project.runtime.data)
        except RelabelError as error:
            results.problems.append((one.name, error))
            continue
        _judge_set(project, request, one, judgements, results)
    return results


def _judge_set(
    project: Project, request: JudgingRequest, one: JudgedSet, judgements: Judgements, results: SetResults
) -> None:
    params, runtime = project.config.judge, project.runtime
    compare = partial(
        set_figures, one, judgements, resamples=params.resamples, seed=params.seed, threads=runtime.threads
    )
    figures: dict[str, list[Figure]] = {}
    left_out: dict[str, str] = {}
    for label in request.labels:
        try:
            for name, source, parts in _variants(project, label):
                reasons = [component.supports("query") for component in (source, *parts.values())]
                # A source that cannot take new texts has no fault. The report says why it is left out.
                if reason := next(filter(None, reasons), None):
                    left_out[name] = reason
                    continue
                # The name of a variant holds spaces, which the name of a folder must not.
                folder = _set_folder(project, one.name)
                scored = score_judgements(judgements, source, runtime, parts, folder, name.replace(" ", "-"))
                figures[name] = compare(scored.scores)
                results.costs.setdefault(name, []).append(scored)
        except RelabelError as error:
            results.problems.append((f"{label} on {one.name}", error))
    for name, function in request.functions.items():
        figures[name] = compare(score_with_function(judgements, function))
    # A file of scores is given for one set, so a fault in it ends the command.
    for path in request.scores:
        figures[path.stem] = compare(read_pair_scores(path, one, judgements, request.allow_missing))
    results.report += set_report(one, figures, left_out, params.resamples, params.seed)
    if figures:
        results.columns.append(set_column(one, figures))


def _set_folder(project: Project, name: str) -> Path:
    """Return the folder of a judged set's texts."""
    # A set from a file is named by the file, which may have any name.
    folder = re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).lstrip("_.+-")[:80] or "file"
    return project.layout.judged_set(folder)


def _variants(project: Project, label: str) -> Iterator[tuple[str, Source[Any], dict[str, Source[Any]]]]:
    """Yield a label's source with its parts, and the source without its gate, which shows the cost of the gate."""
    source, parts = project.config.source(label), project.config.parts(label)
    for name in (label, *parts):
        for model in project.config.params(name).tuned_models():
            stages.ensure_model(project, model)
    yield label, source, parts
    # A fuse needs its gate for neighbours alone.
    if source.gate() is not None and source.spec.pairwise:
        yield f"{label} without its gate", type(source)(source.params.model_copy(update={"gate": None})), {}
