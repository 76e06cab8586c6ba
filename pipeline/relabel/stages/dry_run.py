"""Artefacts that `run` would build, with their rows and bytes, before any work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

from relabel import stages
from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.neighbours.params import Within as Split
from relabel.stages import Job, Project
from relabel.stages.run import labels_to_export, neighbours_params, resolve_split
from relabel.store.artefact import is_current
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel_train.lookup.format import DESCRIPTION


@dataclass(frozen=True)
class Step:
    """One artefact of a plan.

    Attributes
    ----------
    stage, name, out : str
    state : "done", "to do" or "waits"
        `waits`: what it is made from, or something it needs, is not there.
    rows, bytes : int or None
        Of its data files, as they are or will be, without the few KB of `manifest.json` and `lookup.json`; None where
        nobody knows yet.
    exact : bool
        Whether `bytes` is exact; else it is about right.
    """

    stage: str
    name: str
    out: str
    state: Literal["done", "to do", "waits"] = "waits"
    rows: int | None = None
    bytes: int | None = None
    exact: bool = False


def plan(project: Project, split: Split | None = None, labels: Sequence[str] = ()) -> list[Step]:
    """List the artefacts that `run` would build, with their sizes, and build nothing that stays.

    Sizes are predicted from samples of captions, which are encoded and exported in a temporary folder.
    """
    project, split, against = resolve_split(project, split)
    layout, name = project.layout, project.config.ingest.dataset
    steps = [Step("ingest", name, str(layout.corpus), "to do")]
    there = (layout.corpus / MANIFEST).exists()
    if there:
        steps = [_as_is(steps[0], read_manifest(layout.corpus, "corpus"))]
    named = list(labels) or (list(project.config.sources) if against else labels_to_export(project, []))
    if any(stages.needs_word2vec(project.config.params(label)) for label in named):
        trained = stages.word2vec_is_current(project)
        steps.append(Step("tune", "cbow", str(project.word2vec), "done" if trained else "to do"))
    served = labels_to_export(project, labels)
    for label in named:
        found = [
            _step(
                Step("encode", label, str(layout.encoding(split, label))), partial(stages.encode, project, label, split)
            )
        ]
        if against:
            step = Step("judge", label, str(layout.judgement(split, label)))
            found.append(_step(step, partial(stages.judge, project, label)))
        if label in served:
            found += _served(project, split, label)
        if there and label in served and any(step.state != "done" for step in found):
            found = _predicted(project, split, label, found)
        steps += found
    return steps


def _served(project: Project, split: Split, label: str) -> list[Step]:
    near = Step("neighbours", label, str(project.layout.neighbours(split, "captions", label)))
    served = [_step(near, partial(stages.neighbours, project, label, neighbours_params(project, split)))]
    if project.config.source(label).lookup_blocker() is None:
        lookup = Step("export", label, str(project.layout.lookup(split, label)))
        served.append(_step(lookup, partial(stages.export_lookup, project, label, split)))
    return served


def _step(step: Step, job: Callable[[], Job]) -> Step:
    """Look whether an artefact is there."""
    try:
        made = job()
    except (MissingError, CheckError):
        return step
    step = replace(step, out=str(made.out))
    if not is_current(made.out, made.artefact):
        made.check()
        return replace(step, state="to do")
    return _as_is(step, read_manifest(made.out, made.artefact.kind))


def _as_is(step: Step, manifest: Manifest) -> Step:
    size = sum(entry.bytes for name, entry in manifest.files.items() if name != DESCRIPTION)
    rows = manifest.facts.get("rows")
    number = rows[1] - rows[0] if isinstance(rows, list) else None
    return replace(step, state="done", rows=number, bytes=size, exact=True)


def _predicted(project: Project, split: Split, label: str, steps: list[Step]) -> list[Step]:
    """Fill in what is still to be built; a label that lacks something stays as it is."""
    from relabel.stages.estimate import estimate_sizes

    try:
        found = estimate_sizes(project, label, split)
    except RelabelError as error:
        project.runtime.progress.note(f"{label}: no prediction: {error}")
        return steps
    return [
        replace(step, **asdict(found[step.stage])) if step.stage in found and step.state != "done" else step
        for step in steps
    ]
