"""`relabel export plan`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from relabel.export.plan_params import ExportPlanParams
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common


def plan(
    options: Annotated[dict[str, Any], Overrides(ExportPlanParams, "export.plan")],
    common: Common,
    label: Annotated[list[str], typer.Option("--label", "-l", help="Label to plan. Repeatable.")],
    split: Annotated[str, typer.Option(help="Split whose captions are planned: train, val, test or all.")] = "train",
    name: Annotated[
        str | None, typer.Option(help="Folder of the plan; made of label, sampler, batch size, epochs and seed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and write nothing.")] = False,
) -> None:
    """Write a seeded list of batches with their exact blocks."""
    from relabel import stages

    project = common.project(options)
    for each in label:
        if dry_run:
            found = stages.estimate_plan(project, each, split, name)
            common.show(asdict(found), f"plan of {each}: {found.line()}")
            continue
        job = stages.export_plan(project, each, split, name)
        manifest, built = job.run()
        common.show(manifest.facts, stages.status(built, manifest, job.out))


app = verb(plan)
