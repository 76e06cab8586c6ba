"""`relabel nearest`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from relabel.core.errors import RelabelError, UsageError
from relabel.core.tables import align
from relabel.stages.nearest import Hit, search_labels
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
        raise UsageError("expected a caption or --id", hint="Give one: `relabel nearest 'a dog on a surfboard'`.")
    session = common.session()
    query, answers = search_labels(session, text, caption_id, label, k, split)
    found, reasons = dict[str, list[Hit]](), dict[str, str]()
    for name, answer in answers:
        if isinstance(answer, RelabelError):
            reasons[name] = str(answer)
            continue
        found[name] = answer
        if not common.as_json:
            # Each label as soon as its result is available.
            typer.echo("\n".join(hit_lines(name, answer, query if len(found) == 1 else None)))
    hits = {name: [asdict(hit) for hit in answer] for name, answer in found.items()}
    legend = any(hit.same_image for answer in found.values() for hit in answer)
    common.show(
        {"asked": query, "nearest": hits, "left_out": reasons}, "= a caption of the same image" if legend else ""
    )
    for name, reason in reasons.items():
        typer.echo(f"{name} is left out: {reason}", err=True)


def hit_lines(label: str, hits: Sequence[Hit], query: str | None) -> list[str]:
    """Return the results of a label as lines. `query`: header of the first label; None for the others."""
    rows = [] if query is None else [("label", "rank", "score", "id", "caption")]
    for rank, hit in enumerate(hits, 1):
        words = ("= " if hit.same_image else "") + " ".join(hit.text.split())
        rows.append((label, str(rank), f"{hit.score:.3f}", hit.caption_id, words))
    return [*([] if query is None else [f"nearest to: {query}"]), *align(rows, right=(1, 2))]


app = verb(nearest, COMPUTE)
