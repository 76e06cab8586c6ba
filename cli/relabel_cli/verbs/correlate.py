"""`relabel correlate`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from relabel.core.errors import UsageError
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
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            help="Judged sets, by comma or repeated: cxc, eccv, stsb, flickr8k-expert, flickr8k-cf, vsts, sick, "
            "pascal-50s, sugarcrepe-pp, all; or a file of references, candidate and human (.jsonl, .csv, .parquet).",
        ),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(help="Judge scores of CxC's pairs that were computed elsewhere: left, right, score. Repeatable."),
    ] = None,
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
    from relabel.stages.correlate import judged_names
    from relabel_cli.output import report_outcome

    project = common.project(options)
    labels = [name for text in sources or [] for name in text.split(",") if name]
    chosen: list[Against] = [name for text in on or [] for name in text.split(",") if name]
    chosen += [name for name, asked in (("cxc", cxc), ("eccv", eccv), ("stsb", stsb)) if asked]
    if "all" in chosen:
        chosen = [*judged_names(), *(name for name in chosen if name != "all")]
    # One order of tables and no set twice, however the sets were named.
    chosen = sorted(dict.fromkeys(chosen or ["cxc"]), key=lambda name: [*judged_names(), name].index(name))
    if scores and chosen != ["cxc"]:
        raise UsageError("--scores are judged on CxC alone", todo="Use --on cxc.")
    style = "csv" if csv else "md" if md else "latex" if latex else form
    outcome = compare(project, labels, chosen, scores or ())
    if {"cxc", "eccv"} & set(chosen) and not scores:
        outcome.problems += stages.find_failed_rows(
            project, labels or project.config.sources, project.config.judge.split
        )
    if picture is not None and "tables, pictures" in outcome.paths and "cxc" in chosen:
        drawn = outcome.paths["tables, pictures"] / "cxc.png"
        write_atomic(picture, lambda p: shutil.copyfile(drawn, p))
    common.show(outcome.report.data, outcome.report.render(style))
    report_outcome(outcome)


app = verb(correlate)
