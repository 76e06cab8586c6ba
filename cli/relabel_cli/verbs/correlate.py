"""`relabel correlate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relabel import stages
from relabel.core.errors import UsageError
from relabel.core.tables import Style
from relabel.judge import JudgeParams
from relabel.stages.correlate import correlate as compare
from relabel_cli.options import WORKERS, SharedOptions, label_option, split_names, verb
from relabel_cli.output import show_outcome

ON = (
    "Evaluation sets, comma-separated or repeated: cxc, eccv, stsb, flickr8k-expert, flickr8k-cf, composite, polaris, "
    "nebula, vsts, sick, pascal-50s, sugarcrepe-pp, or all on this machine; or a file of references, candidate and "
    "human (.jsonl, .csv, .parquet)."
)
SCORES = "File with scores of the set's pairs, computed elsewhere, to evaluate. Repeatable."


def correlate(
    common: SharedOptions,
    cxc: Annotated[bool, typer.Option("--cxc", help="The same as --on cxc (the default).")] = False,
    eccv: Annotated[bool, typer.Option("--eccv", help="The same as --on eccv.")] = False,
    on: Annotated[list[str] | None, typer.Option("--on", metavar="<set>", callback=split_names, help=ON)] = None,
    scores: Annotated[list[Path] | None, typer.Option(metavar="<file>", help=SCORES)] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Accept --scores that lack pairs.")] = False,
    label: Annotated[list[str], label_option("to compare", "all of params.yaml")] = [],
    style: Annotated[Style, typer.Option("--format", help="Format of the printed tables; or --json.")] = "text",
    picture: Annotated[Path | None, typer.Option(help="Save the plot of the report as PNG.")] = None,
) -> None:
    """Report the agreement of each label with human judgements."""
    session = common.session()
    chosen = [*(on or []), *(name for name, asked in (("cxc", cxc), ("eccv", eccv)) if asked)] or ["cxc"]
    if picture is not None and {*chosen} == {"eccv"}:
        raise UsageError("ECCV Caption does not have a plot", hint="Add a set: --on cxc,eccv.")
    label = common.chosen(session, label)
    outcome = compare(session, label, chosen, scores or (), allow_missing=allow_missing)
    if {"cxc", "eccv", "all"} & {*chosen} and not scores:
        names = label or session.config.sources
        outcome.problems.extend(stages.find_failed_rows(session, names, session.config.judge.split))
    if picture is not None and outcome.report.picture is not None:
        outcome.report.picture(picture)
    show_outcome(common, outcome, style)


app = verb(correlate, (*WORKERS, "skip_missing"), JudgeParams, "judge")
