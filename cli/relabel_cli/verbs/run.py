"""`relabel run`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relabel.judge import JudgeParams
from relabel.neighbours.spec import Within as Split
from relabel_cli.options import Overrides, label_option, verb
from relabel_cli.shared_options import WORKERS, Mirror, SharedOptions


def run(
    common: SharedOptions,
    split: Annotated[Split | None, typer.Option(help="Split to label, or all. [default: judge.split]")] = None,
    label: list[str] = label_option("to build", default="all on a judged split, else export.labels"),
    mirror: Mirror = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the work, with rows, bytes and time.")] = False,
) -> None:
    """Do everything: fetch, ingest, tune, encode, judge, export; then print the tables."""
    from relabel.stages.dry_run import plan_run
    from relabel.stages.run import run as run_stages
    from relabel_cli.output import plan_text, report_outcome, terminal_width

    project = common.project()
    if dry_run:
        steps = plan_run(project, split, label)
        common.show([asdict(step) for step in steps], plan_text(steps))
        return
    outcome = run_stages(project, split, label, mirror)
    common.show(outcome.report.data, outcome.report.render(width=terminal_width()))
    report_outcome(outcome)


app = verb(run, WORKERS, Overrides(JudgeParams, "resamples gate", "judge"))
