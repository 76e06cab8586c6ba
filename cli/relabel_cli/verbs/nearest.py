"""`relabel nearest`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relabel.core.errors import UsageError
from relabel.core.tables import align
from relabel.stages.nearest import search_labels
from relabel_cli.options import COMPUTE, SharedOptions, label_option, split_option, verb


def nearest(
    common: SharedOptions,
    text: Annotated[str | None, typer.Argument(help="A caption.")] = None,
    caption_id: Annotated[str | None, typer.Option("--id", help="Id of a caption, as in coco:770337.")] = None,
    label: Annotated[list[str], label_option("to search with", "all that are encoded")] = [],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of captions to show.")] = 10,
    split: Annotated[str | None, split_option("[default: all, or the first that is encoded]")] = None,
) -> None:
    """Show the captions that each label ranks closest to a caption."""
    if (text is None) == (caption_id is None):
        raise UsageError("expected a caption or --id", todo="Give one: `relabel nearest 'a dog on a surfboard'`.")
    session = common.session()
    query, hits, left_out = search_labels(session, text, caption_id, label, k, split)
    rows = [("label", "rank", "score", "id", "caption")]
    for name, best in hits.items():
        for rank, hit in enumerate(best, 1):
            words = ("= " if hit.same_image else "") + " ".join(hit.text.split())
            rows.append((name, str(rank), f"{hit.score:.3f}", hit.caption_id, words))
    lines = [f"nearest to: {query}", *align(rows, right=(1, 2))]
    if any(hit.same_image for best in hits.values() for hit in best):
        lines.append("= a caption of the same image")
    found = {name: [asdict(hit) for hit in best] for name, best in hits.items()}
    reasons = {name: str(error) for name, error in left_out}
    common.show({"asked": query, "nearest": found, "left_out": reasons}, "\n".join(lines))
    for name, reason in reasons.items():
        typer.echo(f"{name} is left out: {reason}", err=True)


app = verb(nearest, COMPUTE)
