"""`relabel nearest`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relabel.core.errors import UsageError
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import verb


def nearest(
    common: GlobalOptions,
    text: Annotated[str | None, typer.Argument(help="A caption as you would type it.")] = None,
    caption_id: Annotated[str | None, typer.Option("--id", help="Id of a caption in the corpus: coco:770337.")] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Label to ask; all that are encoded by default. Repeatable.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Captions to show.")] = 10,
    split: Annotated[str, typer.Option(help="Split to search: train, val, test or all.")] = "test",
) -> None:
    """Show what each source finds closest to a caption."""
    from relabel.stages.nearest import ask
    from relabel_cli.output import nearest_table

    if (text is None) == (caption_id is None):
        raise UsageError("give a caption or --id, not both", todo='relabel nearest "a dog on a surfboard"')
    project = common.project()
    asked, hits, left_out = ask(project, text, caption_id, source or [], k, split)
    common.show(
        {"asked": asked, "nearest": {label: [asdict(h) for h in found] for label, found in hits.items()}},
        nearest_table(asked, hits),
    )
    for label, error in left_out:
        typer.echo(f"{label} is left out: {error}", err=True)


app = verb(nearest)
