"""The verbs of `relabel export`: lookup, neighbours, plan and wds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from relabel.core.types import Of
from relabel.export import EXPORTS
from relabel.export.params import ExportLookupParams, ExportPlanParams, ExportWdsParams, format_params
from relabel.neighbours.spec import Within
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import Overrides, group, label_option, verb


def export() -> None:
    """Write the files that other code reads: lookups, batch plans, and formats of other tools."""


def lookup(
    options: Annotated[dict[str, Any], Overrides(ExportLookupParams, "export.lookup")],
    common: GlobalOptions,
    label: list[str] = label_option("to write"),
    split: Annotated[
        Within | None,
        typer.Option(help="Encoding: train, val, test or all. [default: the only split of the corpus, else train]"),
    ] = None,
    within: Annotated[
        Within | None, typer.Option(help="Split of the neighbours to include; that of the encoding by default.")
    ] = None,
) -> None:
    """Write arrays that give the relevance of any images and captions, with their neighbours if these exist."""
    from relabel import stages

    project = common.project(options)
    for each in label:
        common.run(stages.export_lookup(project, each, project.choose_split(split, "train", label), within))


def neighbours(
    common: GlobalOptions,
    label: list[str] = label_option("to write"),
    split: Annotated[
        Within | None,
        typer.Option(help="Neighbours within train, val, test or all. [default: the only split, else train]"),
    ] = None,
    of: Annotated[Of, typer.Option(help="captions: neighbours of captions. images: of images.")] = "captions",
) -> None:
    """Write the neighbours that `relabel neighbours` found, with the ids of captions and images."""
    from relabel import stages

    project = common.project()
    for each in label:
        common.run(stages.export_neighbours(project, each, project.choose_split(split, "train", label), of))


def plan(
    options: Annotated[dict[str, Any], Overrides(ExportPlanParams, "export.plan")],
    common: GlobalOptions,
    label: list[str] = label_option("to plan"),
    split: Annotated[
        str | None,
        typer.Option(help="Captions: train, val, test or all. [default: the only split of the corpus, else train]"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the plan; by default made of label, sampler, batch size, epochs and seed."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate size and time, and write nothing.")] = False,
) -> None:
    """Write a seeded list of batches with their exact blocks."""
    from relabel import stages

    project = common.project(options)
    split = project.choose_split(split, "train", label)
    for each in label:
        if dry_run:
            estimate = stages.estimate_plan(project, each, split, name)
            common.show(asdict(estimate), f"plan of {each}: {estimate.describe()}")
            continue
        common.run(stages.export_plan(project, each, split, name))


def wds(
    options: Annotated[dict[str, Any], Overrides(ExportWdsParams, "export.wds")],
    common: GlobalOptions,
    label: list[str] = label_option("to write"),
    split: Annotated[
        str | None,
        typer.Option(help="Lookup: train, val, test or all. [default: the only split of the corpus, else train]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count keys and estimate the size; write nothing.")
    ] = False,
) -> None:
    """Write side-car shards of webdataset: the labels of every sample, by its key."""
    from relabel import stages

    project = common.project(options)
    split = project.choose_split(split, "train", label)
    for each in label:
        if dry_run:
            estimate = stages.estimate_wds(project, each, split)
            common.show(asdict(estimate), f"side-car of {each}: {estimate.describe()}")
            continue
        common.run(stages.export_wds(project, each, split))


def format_verb(kind: str) -> typer.Typer:
    """Return the verb of one of `relabel.export.EXPORTS`, whose options are the parameters of the format."""

    def write(
        options: dict[str, Any],
        common: GlobalOptions,
        label: list[str] = label_option("to write"),
        split: Annotated[
            Within | None, typer.Option(help="train, val, test or all. [default: the only split, else train]")
        ] = None,
    ) -> None:
        from relabel import stages

        project = common.project(options)
        for each in label:
            common.run(stages.export(project, kind, each, project.choose_split(split, "train", label)))

    write.__annotations__["options"] = Annotated[dict[str, Any], Overrides(format_params(kind), f"export.{kind}")]
    write.__name__, write.__doc__ = kind, EXPORTS[kind][2]
    return verb(write)


app = group(
    export,
    lookup=verb(lookup),
    neighbours=verb(neighbours),
    plan=verb(plan),
    wds=verb(wds),
    **{kind: format_verb(kind) for kind in EXPORTS},
)
