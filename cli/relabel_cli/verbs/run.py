"""`relabel run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.filesize import decimal as size

from relabel.core.tables import align, duration
from relabel.judge import JudgeParams
from relabel.neighbours.spec import Within as Split
from relabel.stages.dry_run import PlannedStep, plan_run
from relabel.stages.run import run as run_stages
from relabel_cli.options import label_option, verb
from relabel_cli.output import show_outcome
from relabel_cli.shared_options import WORKERS, Mirror, SharedOptions


def run(
    common: SharedOptions,
    split: Annotated[Split | None, typer.Option(help="Split to label, or all. [default: judge.split]")] = None,
    label: Annotated[list[str], label_option("to build", "all on a judged split, else export.labels")] = [],
    mirror: Mirror = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the work, with rows, bytes and time.")] = False,
) -> None:
    """Do everything: fetch, ingest, tune, encode, judge, export; then print the tables."""
    project = common.project()
    if dry_run:
        steps = plan_run(project, split, label)
        common.show([asdict(step) for step in steps], plan_text(steps))
        return
    outcome = run_stages(project, split, label, mirror)
    show_outcome(common, outcome)


def plan_text(steps: Sequence[PlannedStep]) -> str:
    """List the steps of a run with their state, and the bytes and time of those that are still to be done."""
    cells = [
        (
            step.stage,
            step.name,
            step.state,
            "" if step.rows is None else f"{step.rows:,}",
            "" if step.bytes is None else f"{'' if step.state == 'done' else '~'}{size(step.bytes)}",
            "" if step.seconds is None else f"~{duration(step.seconds)}",
            step.out,
        )
        for step in steps
    ]
    # Unknown sizes and times count as 0: the totals are lower bounds.
    to_do = [step for step in steps if step.state != "done"]
    total_size = ("~" if to_do else "") + size(sum(step.bytes or 0 for step in to_do))
    total_time = ("~" if to_do else "") + duration(sum(step.seconds or 0 for step in to_do))
    header = ("stage", "name", "state", "rows", "size", "time", "where")
    table = align([header, *cells, ("still", "", "", "", total_size, total_time, "")], right=[3, 4, 5])
    note = "~ is approximate, of 2 cores of an AMD EPYC without downloads; empty cells are unknown"
    return "\n".join([*table, note])


app = verb(run, WORKERS, JudgeParams, "resamples gate", "judge")
