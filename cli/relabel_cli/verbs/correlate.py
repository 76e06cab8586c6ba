"""`relabel correlate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relabel.core.errors import UsageError
from relabel.core.tables import Style
from relabel.judge import JudgeParams
from relabel_cli.options import Overrides, label_option, split_names, verb
from relabel_cli.shared_options import WORKERS, SharedOptions

if TYPE_CHECKING:
    from relabel.stages.correlate import Against

ON = (
    "Judged sets, by comma or repeated: cxc, eccv, stsb, flickr8k-expert, flickr8k-cf, vsts, sick, pascal-50s, "
    "sugarcrepe-pp, or all on this machine; or a file of references, candidate and human (.jsonl, .csv, .parquet)."
)
SCORES = "Judge scores of the set's pairs that were computed elsewhere: a file. Repeatable."


def correlate(
    common: SharedOptions,
    cxc: Annotated[bool, typer.Option("--cxc", help="The same as --on cxc (the default).")] = False,
    eccv: Annotated[bool, typer.Option("--eccv", help="The same as --on eccv.")] = False,
    on: Annotated[list[str] | None, typer.Option("--on", metavar="<set>", callback=split_names, help=ON)] = None,
    scores: Annotated[list[Path] | None, typer.Option(metavar="<file>", help=SCORES)] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Accept --scores that lack pairs.")] = False,
    label: list[str] = label_option("to compare", default="all of params.yaml"),
    style: Annotated[Style, typer.Option("--format", help="Format of the printed tables; or --json.")] = "text",
    picture: Annotated[Path | None, typer.Option(help="Draw the report into this file (PNG).")] = None,
) -> None:
    """Report how well each label agrees with human judgement."""
    from relabel import stages
    from relabel.stages.correlate import correlate as compare
    from relabel.stages.correlate import judged_names
    from relabel_cli.output import report_outcome, terminal_width

    project = common.project()
    chosen: list[Against] = list(on or [])
    chosen += [name for name, asked in (("cxc", cxc), ("eccv", eccv)) if asked]
    # One order of tables, however the sets were named; files come last.
    order = [*judged_names(), *chosen]
    chosen = sorted(dict.fromkeys(chosen or ["cxc"]), key=[*order, "cxc"].index)
    if picture is not None and chosen == ["eccv"]:
        raise UsageError("there is no picture of ECCV Caption alone", todo="Add a set: --on cxc,eccv.")
    outcome = compare(project, label, chosen, scores or (), allow_missing=allow_missing)
    if {"cxc", "eccv", "all"} & set(chosen) and not scores:
        outcome.problems += stages.find_failed_rows(
            project, label or project.config.sources, project.config.judge.split
        )
    if picture is not None and outcome.draw is not None:
        outcome.draw(picture)
    common.show(outcome.report.data, outcome.report.render(style, terminal_width()))
    report_outcome(outcome)


app = verb(correlate, WORKERS, Overrides(JudgeParams, "split resamples statistic gate", "judge"))
