"""`relabel report`."""

from __future__ import annotations

from typing import Annotated

import typer

from relabel.judge import JudgeParams
from relabel.neighbours.spec import SplitOrAll
from relabel.stages.run import report as write
from relabel_cli.options import LABELLED, WORKERS, SharedOptions, label_option, verb
from relabel_cli.output import report_outcome


def report(
    common: SharedOptions,
    split: Annotated[SplitOrAll | None, typer.Option(help=LABELLED)] = None,
    label: Annotated[list[str], label_option("to show", "all on a judged split, else export.labels")] = [],
) -> None:
    """Write one HTML page of figures, judged pairs, relevance and nearest captions."""
    session = common.session()
    result = write(session, split, common.chosen(session, label))
    # The path is the result; problems and other folders go to standard error.
    pages = [str(path) for path in result.pages]
    result.paths = {name: path for name, path in result.paths.items() if path not in result.pages}
    common.show({"pages": pages}, "\n".join(pages))
    report_outcome(result)


app = verb(report, (*WORKERS, "skip_missing"), JudgeParams, "judge")
