"""The order of the stages: `run` walks the whole graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relabel import stages
from relabel.core.errors import RelabelError
from relabel.core.layout import Layout
from relabel.neighbours.params import NeighboursParams
from relabel.neighbours.params import Within as Split
from relabel.stages import Project
from relabel.stages.correlate import Against, EvaluationResult, correlate


def run(
    project: Project, split: Split | None = None, labels: Sequence[str] = (), mirror: Path | None = None
) -> EvaluationResult:
    """Do everything for one split of a dataset. What is finished is not repeated.

    Fetch, ingest, tune, encode; judge and correlate where people have judged (COCO's val and test); then neighbours and
    a lookup for training. A label that lacks something (Java, a model, vectors) is left out and named; all others are
    built.

    Parameters
    ----------
    project : Project
    split : "train", "val", "test" or "all", optional
        The judged one (`judge.split`) without.
    labels : sequence of str
        Those to build; else every label of a judged split, and `export.labels` of any other.
    mirror : Path, optional

    Raises
    ------
    RelabelError
        If the corpus cannot be had, or no label can.
    """
    project, split, against = resolve_split(project, split)
    stages.fetch_and_ingest(project, mirror)
    outcome = correlate(project, labels, against) if against else _encode(project, split, labels)
    left_out = {label for label, _ in outcome.problems}
    _note_unserved(project, labels)
    for label in labels_to_export(project, labels):
        if label not in left_out:
            try:
                _serve(project, split, label)
            except RelabelError as error:
                outcome.problems.append((label, error))
    outcome.problems += stages.find_failed_rows(project, labels or project.config.sources, split)
    outcome.paths = _places(project.layout, split, outcome.paths)
    return outcome


def labels_to_export(project: Project, labels: Sequence[str]) -> list[str]:
    """Labels that get neighbours and a lookup: those named, else `export.labels`; never one that cannot have them."""
    config = project.config
    named = labels or [label for label in config.export.labels if label in config.sources]
    return [label for label in named if config.source(label).spec.neighbours_blocker is None]


def _note_unserved(project: Project, labels: Sequence[str]) -> None:
    """Say of named labels that get neither neighbours nor a lookup why they get none."""
    for label in labels:
        if (reason := project.config.source(label).spec.neighbours_blocker) is not None:
            project.runtime.progress.note(f"{label} has neither neighbours nor a lookup from `run`: {reason}")


def resolve_split(project: Project, split: Split | None) -> tuple[Project, Split, list[Against]]:
    """Settle the split, and what it can be held against."""
    config = project.config
    split = split or config.judge.split
    if project.namespace != "coco" or (split != "test" and split != "val"):
        return project, split, []
    judge = config.judge.model_copy(update={"split": split})
    project = replace(project, config=config.model_copy(update={"judge": judge}))
    return project, split, ["cxc", "eccv"] if split == "test" else ["cxc"]


def _encode(project: Project, split: Split, labels: Sequence[str]) -> EvaluationResult:
    outcome, named = EvaluationResult(), list(labels) or labels_to_export(project, [])
    for label in named:
        try:
            stages.build_encoding(project, label, split)
        except RelabelError as error:
            outcome.problems.append((label, error))
    if outcome.problems and len(outcome.problems) == len(named):
        raise outcome.problems[0][1]
    return outcome


def _serve(project: Project, split: Split, label: str) -> None:
    """Find neighbours of captions within the split and write the lookup."""
    stages.run_and_log(project, stages.neighbours(project, label, neighbours_params(project, split)))
    if (reason := project.config.source(label).no_lookup()) is None:
        stages.run_and_log(project, stages.export_lookup(project, label, split))
    else:
        project.runtime.progress.note(f"{label} has no lookup: {reason}")


def _places(layout: Layout, split: Split, judged: dict[str, Path]) -> dict[str, Path]:
    """Order the folders of a run as it fills them; `judged` holds the report's, if there is one."""
    places = {"captions": layout.corpus, "labels": layout.encoding(split)}
    if judged:
        places |= {"scores of judged pairs": layout.judgement(split), **judged}
    return places | {"neighbours": layout.neighbours(split, "captions"), "lookups": layout.lookup(split)}


def neighbours_params(project: Project, split: Split) -> NeighboursParams:
    """Ask for neighbours of captions within a split."""
    return project.config.neighbours.model_copy(update={"within": split, "split": split, "of": "captions"})
