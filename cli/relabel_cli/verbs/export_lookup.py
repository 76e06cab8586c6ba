"""`relabel export lookup`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relabel.export.params import ExportLookupParams
from relabel.neighbours.params import Within
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common


def lookup(
    options: Annotated[dict[str, Any], Overrides(ExportLookupParams, "export.lookup")],
    common: Common,
    label: Annotated[list[str], typer.Option("--label", "-l", help="Label to write. Repeatable.")],
    split: Annotated[Within, typer.Option(help="Encoding to write: that of train, val, test or all.")] = "train",
    within: Annotated[
        Within | None, typer.Option(help="Split whose captions' neighbours go in; --split where nothing is said.")
    ] = None,
) -> None:
    """Write the arrays that answer relevance for any images and captions, and neighbours if they were found before."""
    from relabel import stages

    project = common.project(options)
    for each in label:
        job = stages.export_lookup(project, each, split, within)
        manifest, built = job.run()
        common.show(manifest.facts, stages.status(built, manifest, job.out))


app = verb(lookup)
