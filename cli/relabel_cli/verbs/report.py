"""`relabel report`."""

from __future__ import annotations

from typing import Annotated

import typer

from relabel.judge import JudgeParams
from relabel.stages.run import report as write
from relabel_cli.options import LABELLED, WORKERS, SharedOptions, label_option, split_option, verb
from relabel_cli.output import report_outcome

IMAGES = "Show images: a folder, or a URL with {image_id}."


def report(
    common: SharedOptions,
    split: Annotated[str | None, split_option(LABELLED)] = None,
    label: Annotated[list[str], label_option("to show", "all for val and test of coco, otherwise export.labels")] = [],
    images: Annotated[str | None, typer.Option(metavar="<place>", help=IMAGES)] = None,
) -> None:
    """Write one HTML page of results, judged pairs, relevance and nearest captions."""
    session = common.session()
    result = write(session, split, common.chosen(session, label), images)
    # The path is the result; problems and other folders go to standard error.
    pages = [str(path) for path in result.pages]
    result.paths = {name: path for name, path in result.paths.items() if path not in result.pages}
    common.show({"pages": pages}, "\n".join(pages))
    report_outcome(result)


app = verb(report, (*WORKERS, "skip_missing"), JudgeParams, "judge")
