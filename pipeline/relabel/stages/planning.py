"""export plan: a seeded list of batches with their exact blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from relabel.errors import CheckError, MissingError, UsageError
from relabel.export.plan import PlanUnits
from relabel.export.plan_estimate import Estimate, estimate, refuse_absurd, refuse_full_disk
from relabel.export.plan_neighbours import read_neighbours
from relabel.export.plan_outline import Outline
from relabel.sources.base import Relevance
from relabel.stages.encoding import encoded, open_label
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.manifest import Draft, Manifest, open_artefact, read_manifest
from relabel.store.units import make_all
from relabel.store.work import Work
from relabel_train.batches.base import Neighbours


@dataclass(frozen=True)
class Planning:
    """A plan that can be estimated and made."""

    outline: Outline
    job: Job
    open: Callable[[], Relevance]

    def estimate(self) -> Estimate:
        """Say what it takes; scores a few pairs to time them.

        Raises
        ------
        UsageError
            If it would take more than `max_bytes`, or fills no batch.
        """
        refuse_absurd(self.outline)
        return estimate(self.outline, self.open())


def export_plan(project: Project, label: str, split: str, name: str | None = None) -> Planning:
    """Prepare to plan batches of a split's captions (`export.plan` of the parameters) with a label's blocks.

    Parameters
    ----------
    name : str, optional
        Folder of the plan; made of label, sampler, batch size, epochs and seed by default.

    Raises
    ------
    UsageError
        If there is no such label or split, a parameter makes no sense, or the plan would be absurdly large.
    MissingError, CheckError
        If the encoding or the neighbours are not there, or were made of other captions or under other parameters.
    PartialError
        When it is run, if the disk has no room for it.
    """
    source, corpus, params = project.config.source(label), project.corpus, project.config.export.plan
    pooling = params.pooling or source.params.pooling
    source.check_pooling(pooling)
    rows, encoding = corpus.rows(project.splits(split)), encoded(project, label, split)
    inputs = {"corpus": corpus.digest, "encoding": encoding.fingerprint}
    near = (params.neighbours or label) if params.sampler != "random" else None
    table = _neighbours(project, near, split) if near is not None else None
    if table is not None:
        inputs["neighbours"] = table.fingerprint
    semantic = params.semantic | {"source": source.name, "pooling": pooling, "rows": [rows.start, rows.stop]}
    draft = Draft("plan", name or _name(project, label), semantic, inputs)
    neighbours = partial(_open_neighbours, project, near, split, table, rows)
    outline = Outline(corpus, label, split, near, source, rows, pooling, params, neighbours, draft.fingerprint)
    out = project.layout.plan(split, draft.name)
    open_relevance = partial(open_label, project, label, split)

    def fill(work: Work) -> None:
        refuse_absurd(outline)
        units = PlanUnits(outline, open_relevance)
        found = estimate(outline, units.relevance)
        refuse_full_disk(found, work.folder, sum(e.bytes for e in work.entries().values()))
        project.runtime.progress.note(f"plan {draft.name}: {found.line()}")
        work.runtime["estimate"] = found.__dict__
        make_all(units, work, project.runtime.progress)

    return Planning(outline, Job(out, draft, fill, project.runtime.progress), open_relevance)


def _name(project: Project, label: str) -> str:
    params = project.config.export.plan
    return f"{label}-{params.sampler}-b{params.size}-e{params.epochs}-s{params.seed}"


def _neighbours(project: Project, label: str, split: str) -> Manifest:
    """Read the manifest of neighbours of the split's captions, found in the encoding that is there now."""
    folder = project.layout.neighbours(split, "captions", label)
    todo = f"Run `relabel neighbours --label {label} --within {split}`."
    try:
        found = read_manifest(folder, "neighbours")
    except MissingError as error:
        what = f"this sampler takes the neighbours of {label}, and there are none"
        todo += " Or name another label with --neighbours."
        raise MissingError(what, where=error.where, todo=todo) from error
    if found.inputs.get("corpus") != project.corpus.digest:
        raise CheckError("neighbours among other captions", where=str(folder), todo=todo)
    return found


def _open_neighbours(
    project: Project, label: str | None, split: str, manifest: Manifest | None, rows: range, depth: int
) -> Neighbours:
    if label is None or manifest is None:
        raise UsageError("this sampler takes neighbours", where="export.plan")
    folder = project.layout.neighbours(split, "captions", label)
    open_artefact(folder, "neighbours")
    return read_neighbours(folder, manifest, rows, depth)
