"""The verbs of `relabel export`: lookup, neighbours, plan, wds, and one per format of other tools."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relabel.core.types import Of
from relabel.export import EXPORTS
from relabel.export.params import ExportLookupParams, ExportPlanParams, ExportWdsParams, format_params
from relabel.neighbours.spec import Within
from relabel_cli.options import Overrides, group, label_option, verb
from relabel_cli.shared_options import BUILD, READ, TASKS, SharedOptions

PLAN = "sampler batch_size epochs seed batches k neighbours max_bytes"
WDS = "shards keys layout dtype k captions_per_shard allow_missing"
Split = Annotated[Within | None, typer.Option(help="train, val, test or all. [default: the only split, else train]")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Estimate the size, and write nothing.")]


def export() -> None:
    """Write the files that other code reads: lookups, batch plans, and formats of other tools."""


def lookup(
    common: SharedOptions,
    label: list[str] = label_option("to write"),
    split: Split = None,
    within: Annotated[Within | None, typer.Option(help="Split of the neighbours. [default: that of --split]")] = None,
) -> None:
    """Write arrays that give the relevance of any images and captions, with their neighbours if these exist."""
    from relabel import stages

    project = common.project()
    for each in label:
        common.run(stages.export_lookup(project, each, project.choose_split(split, "train", label), within))


def neighbours(
    common: SharedOptions,
    label: list[str] = label_option("to write"),
    split: Split = None,
    of: Annotated[Of, typer.Option(help="Neighbours of captions or of images.")] = "captions",
) -> None:
    """Write the neighbours that `relabel neighbours` found, with the ids of captions and images."""
    from relabel import stages

    project = common.project()
    for each in label:
        common.run(stages.export_neighbours(project, each, project.choose_split(split, "train", label), of))


def plan(
    common: SharedOptions,
    label: list[str] = label_option("to plan"),
    split: Split = None,
    name: Annotated[str | None, typer.Option(help="Name of the plan. [default: from its parameters]")] = None,
    dry_run: DryRun = False,
) -> None:
    """Write a seeded list of batches with their exact blocks."""
    from relabel import stages

    project = common.project()
    chosen = project.choose_split(split, "train", label)
    for each in label:
        if dry_run:
            estimate = stages.estimate_plan(project, each, chosen, name)
            common.show(asdict(estimate), f"plan of {each}: {estimate.describe()}")
        else:
            common.run(stages.export_plan(project, each, chosen, name))


def wds(
    common: SharedOptions,
    label: list[str] = label_option("to write"),
    split: Split = None,
    dry_run: DryRun = False,
) -> None:
    """Write side-car shards of webdataset: the labels of every sample, by its key."""
    from relabel import stages

    project = common.project()
    chosen = project.choose_split(split, "train", label)
    for each in label:
        if dry_run:
            estimate = stages.estimate_wds(project, each, chosen)
            common.show(asdict(estimate), f"side-car of {each}: {estimate.describe()}")
        else:
            common.run(stages.export_wds(project, each, chosen))


def format_verb(kind: str) -> typer.Typer:
    """Return the verb of one of `relabel.export.EXPORTS`, whose options are the parameters of the format."""

    def write(
        common: SharedOptions,
        label: list[str] = label_option("to write"),
        split: Split = None,
    ) -> None:
        from relabel import stages

        project = common.project()
        for each in label:
            common.run(stages.export(project, kind, each, project.choose_split(split, "train", label)))

    model = format_params(kind)
    write.__name__, write.__doc__ = kind, EXPORTS[kind][2]
    return verb(write, BUILD, Overrides(model, " ".join(model.model_fields), f"export.{kind}"))


app = group(
    export,
    lookup=verb(lookup, BUILD, Overrides(ExportLookupParams, "dtype", "export.lookup")),
    neighbours=verb(neighbours, (*READ, "replace")),
    plan=verb(plan, TASKS, Overrides(ExportPlanParams, PLAN, "export.plan")),
    wds=verb(wds, TASKS, Overrides(ExportWdsParams, WDS, "export.wds")),
    **{kind: format_verb(kind) for kind in EXPORTS},
)
