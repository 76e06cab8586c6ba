"""Lookup arrays of a fuse: those of its parts, with the prefixes `part0.`, `part1.` and so on, and its two heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.hints import command
from relabel.sources import source_class
from relabel.sources.fuse.model import FuseModel
from relabel.sources.fuse.relevance import FuseRelevance
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.arrays import write_array
from relabel.store.workdir import Work
from relabel_train.lookup.fuse import LEAVES


def write_others(relevance: FuseRelevance, work: Work) -> dict[str, Any]:
    """Write the arrays of the kind `others` (see `relabel_train.lookup.fuse`).

    Returns
    -------
    dict
        Description of parts and heads for `lookup.json`.

    Raises
    ------
    UsageError
        If a part has no lookup, or a tree has more leaves than a lookup reads.
    """
    labels = list(relevance.model.parts)
    parts = []
    for i, label in enumerate(labels):
        arrays = _write_part(label, relevance.parts[label], _PrefixedWork(work, f"part{i}."))
        bounds = source_class(relevance.model.parts[label].source).spec.bounds
        parts.append({"label": label, "kind": arrays.kind, "sizes": arrays.sizes, "bounds": list(bounds)})
    _write_heads(relevance.model, work)
    heads = {
        name: [[labels.index(feature.part), feature.pooling] for feature in head.features]
        for name, head in relevance.model.heads.items()
    }
    return {"parts": parts, "heads": heads}


def _write_part(label: str, part: Relevance, work: Work) -> LookupArrays:
    """Write the arrays of one part."""
    message = f"part {label} of this fuse has no lookup"
    if isinstance(part, FuseRelevance):  # the reader does not nest lookups
        raise UsageError(f"{message}: it is a fuse itself", todo=_advice())
    try:
        return part.write_lookup(work)
    except UsageError as error:
        raise UsageError(f"{message}: {error.problem}", todo=_advice()) from error


def _write_heads(model: FuseModel, work: Work) -> None:
    """Write the weights, trees and plateau of both heads."""
    for name, head in model.heads.items():
        # The reader keeps the leaves of a tree in the bits of one byte.
        leaves = np.add.reduceat(head.trees.nodes[:, 0] < 0, head.trees.roots) if len(head.trees.roots) else [0]
        if (most := int(np.max(leaves))) > LEAVES:
            message = f"a tree of this fuse has {most} leaves, but a lookup reads at most {LEAVES}"
            raise UsageError(message, todo=f"Fit it again with --leaves {LEAVES}, or use a batch plan.")
        write_array(work, f"{name}.weights", np.concatenate([[head.intercept], head.weights]))
        write_array(work, f"{name}.plateau", np.array(head.plateau))
        for array, values in head.trees._asdict().items():
            write_array(work, f"{name}.{array}", values)


class _PrefixedWork(Work):
    """Work folder whose files are written with a prefix to their names."""

    def __init__(self, work: Work, prefix: str) -> None:
        super().__init__(work.folder, work.facts, work.runtime)
        self._work, self._prefix = work, prefix

    @override
    def file(self, name: str, write: Callable[[Path], object], rows: int | None = None) -> None:
        self._work.file(self._prefix + name, write, rows)


def _advice() -> str:
    """Return the advice for a fuse without a lookup."""
    return f"Use a batch plan: {command('export', 'plan')}."
