"""`relabel correlate`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from relabel.judge import JudgeParams
from relabel.stages.correlate import Against
from relabel.store.atomic import write_atomic
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import Overrides, verb


def correlate(
    options: Annotated[dict[str, Any], Overrides(JudgeParams, "judge")],
    common: GlobalOptions,
    cxc: Annotated[
        bool, typer.Option("--cxc", help="Compare with human scores of Crisscrossed Captions (the default).")
    ] = False,
    eccv: Annotated[bool, typer.Option("--eccv", help="Rank ECCV Caption with each label.")] = False,
    stsb: Annotated[
        bool, typer.Option("--stsb", help="Compare with the STS benchmark, which must be fetched.")
    ] = False,
    sources: Annotated[
        list[str] | None, typer.Option(help="Labels, separated by commas or repeated; all of params.yaml by default.")
    ] = None,
    form: Annotated[
        Literal["text", "csv", "md", "latex"], typer.Option("--format", help="Format of the printed tables; or --json.")
    ] = "text",
    csv: Annotated[bool, typer.Option("--csv", help="The same as --format csv.")] = False,
    md: Annotated[bool, typer.Option("--md", help="The same as --format md.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="The same as --format latex.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Copy the picture (PNG) to this file.")] = None,
) -> None:
    """Report how well each label agrees with human judgement."""
    from relabel import stages
    from relabel.stages.correlate import correlate as compare
    from relabel_cli.output import report_outcome

    project = common.project(options)
    labels = [name for text in sources or [] for name in text.split(",") if name]
    chosen: list[Against] = []
    chosen += ["cxc"] if cxc or not (eccv or stsb) else []
    chosen += ["eccv"] if eccv else []
    chosen += ["stsb"] if stsb else []
    style = "csv" if csv else "md" if md else "latex" if latex else form
    outcome = compare(project, labels, chosen)
    if chosen != ["stsb"]:
        outcome.problems += stages.find_failed_rows(
            project, labels or project.config.sources, project.config.judge.split
        )
    if picture is not None and "cxc" in chosen:
        drawn = outcome.paths["tables, pictures"] / "cxc.png"
        write_atomic(picture, lambda p: shutil.copyfile(drawn, p))
    common.show(outcome.report.data, outcome.report.render(style))
    report_outcome(outcome)


app = verb(correlate)
