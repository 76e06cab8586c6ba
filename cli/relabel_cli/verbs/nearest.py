"""`relabel nearest`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relabel.core.errors import UsageError
from relabel_cli.options import label_option, verb
from relabel_cli.shared_options import COMPUTE, SharedOptions, Split


def nearest(
    common: SharedOptions,
    text: Annotated[str | None, typer.Argument(help="A caption.")] = None,
    caption_id: Annotated[str | None, typer.Option("--id", help="Id of a caption, as in coco:770337.")] = None,
    label: list[str] = label_option("to search with", default="all that are encoded"),
    k: Annotated[int, typer.Option("-k", min=1, help="Number of captions to show.")] = 10,
    split: Split = None,
) -> None:
    """Show the captions that each label ranks closest to a caption."""
    from relabel.stages.nearest import search_labels
    from relabel_cli.output import nearest_table

    if (text is None) == (caption_id is None):
        raise UsageError("expected a caption or --id", todo="Give one: `relabel nearest 'a dog on a surfboard'`.")
    project = common.project()
    query, hits, left_out = search_labels(project, text, caption_id, label, k, split)
    common.show(
        {
            "asked": query,
            "nearest": {name: [asdict(hit) for hit in best] for name, best in hits.items()},
            "left_out": {name: str(error) for name, error in left_out},
        },
        nearest_table(query, hits),
    )
    for name, error in left_out:
        typer.echo(f"{name} is left out: {error}", err=True)


app = verb(nearest, COMPUTE)
