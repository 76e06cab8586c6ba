"""export plan: a seeded list of batches with their exact blocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

from relabel.config import Config
from relabel.core.errors import MissingError, UsageError
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import NeighbourTable, read_neighbours
from relabel.export.plan.build import Estimate, PlanTasks, check_disk_space, check_size_limit, estimate
from relabel.export.plan.spec import PlanSpec
from relabel.sources.relevance import Relevance
from relabel.sources.shards import read_failed_rows
from relabel.sources.typical_costs import PLAN, Cost, typical_cost
from relabel.stages.encode import open_label, read_encoding, serving_split
from relabel.stages.export import read_current_neighbours
from relabel.stages.job import Job, Values, label_values, run_tasks, variant
from relabel.stages.project import Project
from relabel.store.manifest import ArtefactSpec, Manifest, read_artefact, refuse_replaced
from relabel.store.workdir import Work
from relabel_train.batches.plan import FORMAT


def export_plan(project: Project, label: str, split: str, name: str | None = None) -> Job:
    """Prepare to plan batches of a split's captions with the blocks of a label.

    Sampler and sizes are those of `export.plan` in the parameters. Encoding and neighbours are those of the split if
    they exist, else those of all captions (`serving_split`).

    `name`: name of the plan and of its folder; by default made of label, sampler, batch size, epochs and seed.
    """
    outline, artefact, opened = _outline(project, label, split, name)

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        check_size_limit(outline)
        tasks = PlanTasks(outline, opened)
        with closing(tasks.relevance) as relevance:
            cost = estimate(outline, relevance, _typical_cost(project, label))
            # Files of an interrupted run are kept, and need no more space.
            check_disk_space(cost, work.folder, sum(e.bytes for e in work.entries().values()))
            project.runtime.progress.note(f"plan {artefact.name}: {cost.describe()}")
            work.runtime["estimate"] = cost.__dict__
            run_tasks(project, tasks, artefact, work, export_plan, label, split, name)

    out = project.layout.plan(split, artefact.name)
    plan_variant = variant(project, partial(_values, label=label), advice=lambda _: "Name the plan with --name.")
    # A named plan is a trial: its parameters are those of the command that named it.
    plan_variant = replace(plan_variant, trial=plan_variant.trial or name is not None)
    tasks = partial(PlanTasks, outline, opened)
    return Job(out, artefact, fill, project.runtime.progress, tasks, plan_variant)


def _values(config: Config, label: str) -> Values:
    """Return the parameters of a plan."""
    plan = config.export.plan.model_dump(mode="json")
    return label_values(config, label) | {f"export.plan.{name}": value for name, value in plan.items()}


def estimate_plan(project: Project, label: str, split: str, name: str | None = None) -> Estimate:
    """Estimate the size and time of a plan without writing it.

    No pair is scored. Parameters and errors are those of `export_plan`.
    """
    outline, _, opened = _outline(project, label, split, name)
    check_size_limit(outline)
    with closing(opened()) as relevance:
        return estimate(outline, relevance, _typical_cost(project, label))


def _typical_cost(project: Project, label: str) -> Cost | None:
    return typical_cost(PLAN, project.config.params(label))


def _outline(
    project: Project, label: str, split: str, name: str | None
) -> tuple[PlanSpec, ArtefactSpec, Callable[[], Relevance]]:
    source, corpus, params = project.config.source(label), project.corpus, project.config.export.plan
    pooling = params.pooling or source.params.pooling
    source.check_pooling(pooling)
    rows = corpus.rows(project.splits(split))
    covering = serving_split(project, lambda s: project.layout.encoding(s, label), split)
    encoding = read_encoding(project, label, covering)
    inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    near = (params.neighbours or label) if params.sampler != "random" else None
    table = _neighbours(project, near, split) if near is not None else None
    if table is not None:
        inputs["neighbours"] = table.manifest.identity
    # A sampler's unused parameters are not in `params.semantic`: they cannot change the plan.
    semantic = params.semantic | {"source": source.spec.name, "pooling": pooling, "rows": [rows.start, rows.stop]}
    semantic["format"] = FORMAT
    artefact = ArtefactSpec("plan", _name(project, label) if name is None else name, semantic, inputs)
    # The failed rows are read from files, which must still be those of the manifest afterwards.
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


def _neighbours(project: Project, label: str, split: str) -> ArtefactRef:
    """Return the table of neighbours of captions that covers a split."""
    covering = serving_split(project, lambda s: project.layout.neighbours(s, "captions", label), split)
    todo = f"Run {project.command('neighbours', label=label, within=split)}."
    try:
        return read_current_neighbours(project, label, covering, "captions", todo)
    except MissingError as error:
        message = f"the sampler uses the neighbours of {label}, which do not exist"
        todo += " Or name another label with --neighbours."
        raise MissingError(message, where=error.where, todo=todo) from error


def _open_neighbours(table: ArtefactRef | None, rows: range, most: int, least: int) -> NeighbourTable:
    if table is None:
        raise UsageError("the sampler needs neighbours", where="export.plan")

    def read(manifest: Manifest) -> NeighbourTable:
        # The plan's fingerprint names the table that was there when the job was prepared.
        refuse_replaced(table.folder, table.manifest)
        return read_neighbours(table.folder, manifest, rows, most, least)

    return read_artefact(table.folder, "neighbours", read)
