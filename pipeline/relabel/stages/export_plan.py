"""export plan: a seeded list of batches with their exact blocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.export.neighbours import NeighbourTable, read_neighbours
from relabel.export.plan.build import PlanTasks
from relabel.export.plan.estimate import Estimate, check_disk_space, check_size_limit, estimate
from relabel.export.plan.spec import PlanSpec
from relabel.sources.relevance import Relevance
from relabel.sources.shards import read_failed_rows
from relabel.stages.encode import open_label, read_encoding
from relabel.stages.job import Job, run_tasks
from relabel.stages.project import Project
from relabel.stages.variants import Values, label_values, variant
from relabel.store.manifest import MANIFEST, ArtefactSpec, Manifest, read_manifest
from relabel.store.reading import read_artefact, refuse_replaced
from relabel.store.workdir import Work
from relabel_train.batches.plan import FORMAT


def export_plan(project: Project, label: str, split: str, name: str | None = None) -> Job:
    """Prepare to plan batches of a split's captions (`export.plan` of the parameters) with a label's blocks.

    Encoding and neighbours are those of the split where there are any, else those of all captions.

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
    outline, artefact, opened = _outline(project, label, split, name)

    def fill(work: Work) -> None:
        check_size_limit(outline)
        tasks = PlanTasks(outline, opened)
        with closing(tasks.relevance) as relevance:
            found = estimate(outline, relevance)
            check_disk_space(found, work.folder, sum(e.bytes for e in work.entries().values()))
            project.runtime.progress.note(f"plan {artefact.name}: {found.describe()}")
            work.runtime["estimate"] = found.__dict__
            run_tasks(project, tasks, artefact, work, export_plan, label, split, name)

    out = project.layout.plan(split, artefact.name)
    made = variant(project, partial(_values, label=label), advice=lambda _: "Name the plan with --name.")
    made = replace(made, trial=made.trial or name is not None)  # the command alone says what a named plan holds
    return Job(out, artefact, fill, project.runtime.progress, partial(PlanTasks, outline, opened), made)


def _values(config: Config, label: str) -> Values:
    """Return the parameters of a plan."""
    own = config.export.plan.model_dump(mode="json")
    return label_values(config, label) | {f"export.plan.{name}": value for name, value in own.items()}


def estimate_plan(project: Project, label: str, split: str, name: str | None = None) -> Estimate:
    """Say what a plan takes, and write nothing; scores a few pairs to time them. Raises as `export_plan`."""
    outline, _, opened = _outline(project, label, split, name)
    check_size_limit(outline)
    with closing(opened()) as relevance:
        return estimate(outline, relevance)


def _outline(
    project: Project, label: str, split: str, name: str | None
) -> tuple[PlanSpec, ArtefactSpec, Callable[[], Relevance]]:
    source, corpus, params = project.config.source(label), project.corpus, project.config.export.plan
    pooling = params.pooling or source.params.pooling
    source.check_pooling(pooling)
    rows = corpus.rows(project.splits(split))
    covering = _covering(lambda s: project.layout.encoding(s, label), split)
    encoding = read_encoding(project, label, covering)
    inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    near = (params.neighbours or label) if params.sampler != "random" else None
    table = _neighbours(project, near, split) if near is not None else None
    if table is not None:
        inputs["neighbours"] = table.manifest.identity
    semantic = params.semantic | {"source": source.spec.name, "pooling": pooling, "rows": [rows.start, rows.stop]}
    semantic["format"] = FORMAT
    artefact = ArtefactSpec("plan", _name(project, label) if name is None else name, semantic, inputs)
    failed = read_failed_rows(project.layout.encoding(covering, label), encoding)
    refuse_replaced(project.layout.encoding(covering, label), encoding)
    neighbours = partial(_open_neighbours, table, rows)
    outline = PlanSpec(
        corpus, label, split, near, source, rows, failed, pooling, params, neighbours, artefact.fingerprint
    )
    return outline, artefact, partial(open_label, project, label, covering, encoding)


def _name(project: Project, label: str) -> str:
    params = project.config.export.plan
    return f"{label}-{params.sampler}-b{params.size}-e{params.epochs}-s{params.seed}"


@dataclass(frozen=True)
class _Found:
    folder: Path
    manifest: Manifest


def _neighbours(project: Project, label: str, split: str) -> _Found:
    """Find the neighbours of captions that cover a split."""
    covering = _covering(lambda s: project.layout.neighbours(s, "captions", label), split)
    folder = project.layout.neighbours(covering, "captions", label)
    todo = f"Run `relabel neighbours --label {label} --within {split}`."
    try:
        found = read_manifest(folder, "neighbours")
    except MissingError as error:
        what = f"this sampler takes the neighbours of {label}, and there are none"
        raise MissingError(what, where=error.where, todo=f"{todo} Or name another label with --neighbours.") from error
    if found.inputs.get("corpus") != project.corpus.digest:
        raise CheckError("neighbours among other captions", where=str(folder), todo=todo)
    return _Found(folder, found)


def _open_neighbours(found: _Found | None, rows: range, most: int, least: int) -> NeighbourTable:
    if found is None:
        raise UsageError("this sampler takes neighbours", where="export.plan")

    def read(manifest: Manifest) -> NeighbourTable:
        refuse_replaced(found.folder, found.manifest)
        return read_neighbours(found.folder, manifest, rows, most, least)

    return read_artefact(found.folder, "neighbours", read)


def _covering(folder: Callable[[str], Path], split: str) -> str:
    """Take the split itself if its folder is there, else `all` if that is."""
    return "all" if not (folder(split) / MANIFEST).exists() and (folder("all") / MANIFEST).exists() else split
