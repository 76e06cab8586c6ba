"""`relabel report`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relabel.judge import JudgeParams
from relabel.neighbours.spec import Within as Split
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import Overrides, label_option, verb


def report(
    options: Annotated[dict[str, Any], Overrides(JudgeParams, "judge", without=("split", "statistic"))],
    common: GlobalOptions,
    split: Annotated[
        Split | None,
        typer.Option(help="Split of the page. [default: judge.split, else the only split of the corpus]"),
    ] = None,
    label: list[str] = label_option("to show", default="all on a judged split, else export.labels"),
) -> None:
    """Write one HTML page of figures, judged pairs, relevance and nearest captions."""
    from relabel.stages.run import report as write
    from relabel_cli.output import report_outcome

    project = common.project(options)
    result = write(project, split, label)
    # The path is the result; problems and other folders go to standard error.
    path = result.paths.pop("report", None)
    common.show({"report": None if path is None else str(path)}, "" if path is None else str(path))
    report_outcome(result)


app = verb(report)
