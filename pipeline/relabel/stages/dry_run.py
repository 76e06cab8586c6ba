"""dry run: the artefacts that `run` would build, with their rows, bytes and seconds, before any work."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from relabel import stages
from relabel.core.errors import CheckError, MissingError
from relabel.neighbours.spec import Within as Split
from relabel.sources.typical_costs import ENCODE, FAISS, INGEST, LOOKUP, NEIGHBOURS, Cost, typical_cost
from relabel.stages import Project
from relabel.stages.correlate import with_baseline
from relabel.stages.ingest import FETCHED
from relabel.stages.job import Step
from relabel.stages.page import page, page_name
from relabel.stages.run import default_labels, labels_to_export, resolve_split
from relabel.stages.steps import export_steps, label_steps
from relabel.store.manifest import MANIFEST, read_manifest

_COSTS = {"encode": ENCODE, "neighbours": NEIGHBOURS, "export": LOOKUP, "export faiss": FAISS}
"""Stage to the typical costs of its artefacts."""
_ID_BYTES = 50  # ids and offsets of a caption in a lookup
State = Literal["done", "partly", "to do"]


@dataclass(frozen=True)
class PlannedStep:
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


def plan_run(project: Project, split: Split | None = None, labels: Sequence[str] = ()) -> list[PlannedStep]:
    """List the artefacts that `run` would build, with their sizes and typical times, and build none of them."""
    project, split, against = resolve_split(project, split, labels)
    names = with_baseline(project, default_labels(project, labels, judged=bool(against)), against)
    planned, rows = _captions(project, split)
    steps = [*label_steps(project, names, split, against)]
    steps += export_steps(project, labels_to_export(project, labels), split)
    planned += [_planned(project, step, rows) for step in steps]
    out = project.layout.page(page_name(project, split, labels))
    last = Step("report", "report", split, out, lambda: page(project, split, labels, names, against))
    return [*planned, _planned(project, last, None)]


def _captions(project: Project, split: Split) -> tuple[list[PlannedStep], int | None]:
    """Return the steps that make the corpus, and the number of captions of a split, where it is known."""
    config, out = project.config.ingest, project.layout.corpus
    step = Step("ingest", "ingest", config.dataset, out, lambda: stages.ingest(project))
    if (out / MANIFEST).exists() and (planned := _planned(project, step, None)).state == "done":
        return [planned], len(project.corpus.rows(project.splits(split)))
    counts = {name: published.captions for name, published in config.counts.items()}
    rows = counts.get("all")
    ingest = PlannedStep("ingest", config.dataset, str(out), rows=rows, **_cost(INGEST, rows))
    fetched = FETCHED.get(config.dataset) if not config.has_location else None
    return [*(_fetch_steps(project, fetched) if fetched else []), ingest], counts.get(split)


def _fetch_steps(project: Project, name: str) -> list[PlannedStep]:
    """Return the step that fetches the files of a dataset; none if all of them are there."""
    from relabel.datasets.registry import load_manifest

    manifest, folder = load_manifest(name), project.runtime.data / name
    missing = [file for file in manifest.files if not (folder / file.name).exists()]
    if manifest.alternatives:
        missing = missing[:1] if len(missing) == len(manifest.files) else []
    size = sum(file.bytes for file in missing)
    return [PlannedStep("fetch", name, str(folder), bytes=size)] if missing else []


def _planned(project: Project, step: Step, captions: int | None) -> PlannedStep:
    """Return a step with its state; if it is not done, with its typical size and time."""
    rows = captions if step.stage in _COSTS else None
    state: State = "to do"
    # A model that was never trained has no state, and to prepare its training may take a download.
    if step.stage != "tune" or (step.out / MANIFEST).exists():
        # Its inputs may be missing or stale.
        with suppress(MissingError, CheckError):
            state = step.prepare().state()
    planned = PlannedStep(step.stage, step.name, str(step.out), state, rows)
    if state == "done":
        manifest = read_manifest(step.out)
        made = manifest.facts.get("rows")
        return replace(planned, rows=made[1] - made[0] if isinstance(made, list) else rows, bytes=manifest.bytes)
    if rows is None:
        return planned
    neighbours = project.config.neighbours
    # A row number and a score of 4 bytes each per neighbour.
    lists = rows * 8 * min(neighbours.k, rows - 1)
    more = {"neighbours": lists, "export": lists + rows * _ID_BYTES}.get(step.stage, 0)
    cost = typical_cost(_COSTS[step.stage], project.config.params(step.name))
    planned = replace(planned, **_cost(cost, rows, more))
    # The time of an approximate search depends on its index.
    return replace(planned, seconds=None) if step.stage == "neighbours" and neighbours.index is not None else planned


def _cost(cost: Cost | None, rows: int | None, more_bytes: int = 0) -> dict[str, Any]:
    """Return the typical bytes and seconds of an artefact; `more_bytes` follow from shapes."""
    if cost is None or rows is None:
        return {}
    size = None if cost.bytes is None else round(rows * cost.bytes) + more_bytes
    return {"bytes": size, "seconds": rows / 1000 * cost.seconds}
