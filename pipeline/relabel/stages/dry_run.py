"""dry run: the artefacts that `run` would build, with their rows, bytes and seconds, before any work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from relabel import stages
from relabel.core.errors import CheckError, MissingError
from relabel.neighbours.spec import Within as Split
from relabel.sources.typical_costs import ENCODE, FAISS, INGEST, LOOKUP, NEIGHBOURS, Cost, typical_cost
from relabel.stages import Job, Project
from relabel.stages.ingest import FETCHED
from relabel.stages.page import page_folder, page_is_current
from relabel.stages.run import default_labels, labels_to_export, resolve_split
from relabel.store.manifest import MANIFEST, Manifest, read_manifest

_ID_BYTES = 50  # ids and offsets of a caption in a lookup
State = Literal["done", "partly", "to do"]


@dataclass(frozen=True)
class Step:
    """One artefact of a run.

    `state`: "partly" if an interrupted run has left work that the next one continues.
    `rows`: captions; None if unknown.
    `bytes`: size of its files: measured if it is done, else approximate; None if unknown.
    `seconds`: typical time of the work on 2 CPU cores; None if unknown or done.
    """

    stage: str
    name: str
    out: str
    state: State = "to do"
    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None


def plan_run(project: Project, split: Split | None = None, labels: Sequence[str] = ()) -> list[Step]:
    """List the artefacts that `run` would build, with their sizes and typical times, and build none of them."""
    project, split, against = resolve_split(project, split, labels)
    layout, dataset, steps = project.layout, project.config.ingest.dataset, list[Step]()
    ingest = Step("ingest", dataset, str(layout.corpus))
    if (layout.corpus / MANIFEST).exists():
        steps.append(_completed(ingest, read_manifest(layout.corpus, "corpus")))
        rows: int | None = len(project.corpus.rows(project.splits(split)))
    else:
        if not project.config.ingest.has_location and dataset in FETCHED:
            steps += _fetch_steps(project, FETCHED[dataset])
        steps.append(_with_cost(replace(ingest, rows=_published_captions(project, "all")), INGEST))
        rows = _published_captions(project, split)
    names = default_labels(project, labels, judged=bool(against))
    if any(stages.needs_word2vec(project.config.params(label)) for label in names):
        state: State = "done" if stages.word2vec_is_current(project) else "to do"
        steps.append(Step("tune", "cbow", str(project.word2vec), state))
    exported = labels_to_export(project, labels)
    for label in names:
        encoding = Step("encode", label, str(layout.encoding(split, label)), rows=rows)
        encoding = _look_up(encoding, partial(stages.encode, project, label, split))
        steps.append(_with_cost(encoding, typical_cost(ENCODE, project.config.params(label))))
        if against:
            judgement = Step("judge", label, str(layout.judgement(split, label)))
            steps.append(_look_up(judgement, partial(stages.judge, project, label)))
        if label in exported:
            steps += _export_steps(project, split, label, rows)
    page = Step("report", split, str(page_folder(project, split, labels)))
    if all(step.state == "done" for step in steps) and page_is_current(project, split, labels, names, bool(against)):
        page = _completed(page, read_manifest(page_folder(project, split, labels), "page"))
    return [*steps, page]


def _export_steps(project: Project, split: Split, label: str, rows: int | None) -> list[Step]:
    params, config = project.config.params(label), project.config.neighbours
    near = Step("neighbours", label, str(project.layout.neighbours(split, "captions", label)), rows=rows)
    near = _look_up(near, partial(stages.neighbours, project, label, split, "captions", split))
    # A row number and a score of 4 bytes each per neighbour.
    lists = 0 if rows is None else rows * 8 * min(config.k, rows - 1)
    # The cost of an approximate search depends on its index.
    steps = [_with_cost(near, typical_cost(NEIGHBOURS, params) if config.index is None else None, lists)]
    if project.config.source(label).supports("lookup") is None:
        lookup = Step("export", label, str(project.layout.lookup(split, label)), rows=rows)
        lookup = _look_up(lookup, partial(stages.export_lookup, project, label, split))
        ids = 0 if rows is None else rows * _ID_BYTES
        steps.append(_with_cost(lookup, typical_cost(LOOKUP, params), lists + ids))
    if project.config.source(label).spec.kind == "vectors":
        index = Step("export faiss", label, str(project.layout.export(split, "faiss", label)), rows=rows)
        index = _look_up(index, partial(stages.export, project, "faiss", label, split))
        steps.append(_with_cost(index, typical_cost(FAISS, params)))
    return steps


def _fetch_steps(project: Project, name: str) -> list[Step]:
    """Return the step that fetches the files of a dataset; none if all of them are there."""
    from relabel.datasets.registry import load_manifest

    manifest, folder = load_manifest(name), project.runtime.data / name
    missing = [file for file in manifest.files if not (folder / file.name).exists()]
    if manifest.alternatives:
        missing = missing[:1] if len(missing) == len(manifest.files) else []
    size = sum(file.bytes for file in missing)
    return [Step("fetch", name, str(folder), bytes=size)] if missing else []


def _published_captions(project: Project, split: Split) -> int | None:
    published = project.config.ingest.counts.get(split)
    return None if published is None else published.captions


def _look_up(step: Step, prepare: Callable[[], Job]) -> Step:
    """Return the step with the state of its artefact on disk."""
    try:
        job = prepare()
        state = job.state()
    except (MissingError, CheckError):
        # Its inputs are missing or stale.
        return step
    step = replace(step, out=str(job.out))
    return _completed(step, read_manifest(job.out)) if state == "done" else replace(step, state=state)


def _completed(step: Step, manifest: Manifest) -> Step:
    rows = manifest.facts.get("rows")
    count = rows[1] - rows[0] if isinstance(rows, list) else step.rows
    return replace(step, state="done", rows=count, bytes=manifest.bytes)


def _with_cost(step: Step, cost: Cost | None, more_bytes: int = 0) -> Step:
    """Return the step with its typical seconds and bytes, if it is not done; `more_bytes` follow from shapes."""
    if step.state == "done" or step.rows is None:
        return step
    per_caption = 0 if step.stage == "neighbours" else None if cost is None else cost.bytes
    return replace(
        step,
        bytes=None if per_caption is None else round(step.rows * per_caption) + more_bytes,
        seconds=None if cost is None else step.rows / 1000 * cost.seconds,
    )
