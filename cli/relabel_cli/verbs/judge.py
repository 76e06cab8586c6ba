"""`relabel judge`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relabel.judge import JudgeParams
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import Overrides, verb


def judge(
    options: Annotated[dict[str, Any], Overrides(JudgeParams, "judge")],
    common: GlobalOptions,
    label: list[str] = typer.Option([], "--label", "-l", help="Label of params.yaml; all by default. Repeatable."),
) -> None:
    """Score the human-judged pairs with a source."""
    from relabel import stages

    project = common.project(options)
    for name in label or project.config.sources:
        job = stages.judge(project, name)
        manifest, built = job.run()
        common.show(manifest.facts, stages.status_line(built, manifest, job.out))


app = verb(judge)
