"""`relabel nearest`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relabel.core.errors import UsageError
from relabel.core.hints import command
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import verb


def nearest(
    common: GlobalOptions,
    text: Annotated[str | None, typer.Argument(help="A caption.")] = None,
    caption_id: Annotated[
        str | None, typer.Option("--id", help="Id of a caption in the corpus, as in coco:770337.")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Label to search with; all that are encoded by default. Repeatable.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of captions to show.")] = 10,
    split: Annotated[
        str | None,
        typer.Option(help="Search in train, val, test or all. [default: the only split of the corpus, else test]"),
    ] = None,
) -> None:
    """Show the captions that each source finds closest to a caption."""
    from relabel.stages.nearest import search_labels
    from relabel_cli.output import nearest_table

    if text is None and caption_id is None:
        example = command("nearest", "a dog on a surfboard")
        todo = f"Give a caption, as in {example}, or --id with the id of one."
        raise UsageError("nothing to search for", todo=todo)
    if text is not None and caption_id is not None:
        raise UsageError("a caption and --id exclude each other", todo="Give one of them.")
    project = common.project()
    query, hits, left_out = search_labels(project, text, caption_id, source or [], k, split)
    common.show(
        {
            "asked": query,
            "nearest": {label: [asdict(hit) for hit in best] for label, best in hits.items()},
            "left_out": {label: str(error) for label, error in left_out},
        },
        nearest_table(query, hits),
    )
    for label, error in left_out:
        typer.echo(f"{label} is left out: {error}", err=True)


app = verb(nearest)
