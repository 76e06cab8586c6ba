"""The order of the stages: `run` walks the whole graph, `plan` says what it would do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relabel import stages
from relabel.correlate import Against, Outcome, correlate
from relabel.errors import MissingError
from relabel.stages import Job, Project
from relabel.store.artefact import is_current


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
    stages.fetch(project, mirror)
    stages.note(project, stages.ingest(project), project.layout.corpus)
    against: list[Against] = ["cxc", "eccv"] if project.config.ingest.prefix == "coco" else []
    if project.config.judge.split != "test":
        against = [a for a in against if a != "eccv"]
    outcome = correlate(project, [], against)
    layout, split = project.layout, project.config.judge.split
    outcome.places |= {"captions": layout.corpus, "labels": layout.encoding(split, "")}
    if against:
        outcome.places |= {"scores of judged pairs": layout.judgement(split, "")}
        outcome.places |= {"tables, pictures": layout.report(split)}
    return outcome


def plan(project: Project) -> list[Step]:
    """Say what `run` would do, and do nothing."""
    layout, split = project.layout, project.config.judge.split
    steps = [Step("ingest", project.config.ingest.dataset, "to do", str(layout.corpus))]
    try:
        rows = len(project.corpus)
        steps = [Step("ingest", f"{project.config.ingest.dataset}, {rows:,} captions", "done", str(layout.corpus))]
    except MissingError:
        pass
    if any(stages.needs_word2vec(p) for p in project.config.sources.values()):
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
