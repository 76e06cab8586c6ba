"""Exports of a small project, opened and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relabel_train.lookup import Lookup, open_lookup
from relabel_train.precomputed import PrecomputedBatches, open_batches

Opener = Callable[..., Any]
KINDS = ("cbow", "cider", "batches")


def opener(kind: str) -> Opener:
    return open_batches if kind == "batches" else open_lookup


def values(opened: Lookup | PrecomputedBatches) -> list[Any]:
    """Return all results of a lookup or plan."""
    if isinstance(opened, PrecomputedBatches):
        batches = [a for n in range(len(opened)) for a in opened[n]]
        names = [opened.names(n) for n in range(len(opened))]
        return [opened.about, *(a.tolist() for a in batches), names, opened.caption_ids.find([names[0][0][0]], "x")]
    rows = list(opened.rows)
    answers = [opened.block(rows[::7]), opened.same_image(rows[::7]), *opened.neighbours(rows[::7])]
    return [*(a.tolist() for a in answers), opened.caption_ids(rows), opened.image_ids(rows)]
