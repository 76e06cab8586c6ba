"""`relabel run`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from relabel.judge import JudgeParams
from relabel.neighbours.params import Within as Split
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import Overrides, verb


def run(
    options: Annotated[dict[str, Any], Overrides(JudgeParams, "judge", without=("split",))],
    common: GlobalOptions,
    split: Annotated[
        Split | None, typer.Option(help="Split to label; all for every caption. [default: judge.split]")
    ] = None,
    label: list[str] = typer.Option(
        [],
        "--label",
        "-l",
        help="Label to build. Repeatable. [default: all, and export.labels where nobody has judged the split]",
    ),
    mirror: Annotated[
        Path | None, typer.Option(envvar="RELABEL_MIRROR", help="Folder to take files from instead of the network.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be built, with rows and bytes.")] = False,
) -> None:
    """Do everything: fetch, ingest, tune, encode, judge; then print the tables."""
    from relabel.stages.dry_run import plan
    from relabel.stages.run import run as walk
    from relabel_cli.output import plan_text, report_outcome

    project = common.project(options)
    if dry_run:
        steps = plan(project, split, label)
        common.show([asdict(step) for step in steps], plan_text(steps))
        return
    outcome = walk(project, split, label, mirror)
    common.show(outcome.report.data, outcome.report.render())
    report_outcome(outcome)


app = verb(run)
