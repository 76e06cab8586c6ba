"""The arrays of a fuse: those of its parts, under their own names after `part0.`, `part1.`, ...; and its two heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from relabel.errors import UsageError
from relabel.export.arrays import write_array
from relabel.export.features import write_features
from relabel.export.scene_graphs import write_scene_graphs
from relabel.sources import source_class
from relabel.sources.base import Relevance
from relabel.sources.fuse_model import FuseModel
from relabel.sources.fuse_relevance import FuseRelevance
from relabel.sources.given_relevance import GivenRelevance
from relabel.sources.ngrams.relevance import CiderRelevance
from relabel.sources.same_image import SameImageRelevance
from relabel.sources.scene_graphs.relevance import SceneGraphRelevance
from relabel.sources.vectors import VectorRelevance
from relabel.store.work import Work
from relabel_train.lookup.trees import LEAVES


def write_others(relevance: Relevance, work: Work) -> dict[str, Any]:
    """Write the arrays of the kind `others`; return what `lookup.json` says of parts and heads.

    Raises
    ------
    UsageError
        If a part has no lookup, or a tree has more leaves than a lookup reads.
    """
    assert isinstance(relevance, FuseRelevance)
    labels = list(relevance.model.parts)
    parts = []
    for i, label in enumerate(labels):
        bounds = source_class(relevance.model.parts[label].source).bounds
        kind, sizes = _write_part(label, relevance.parts[label], bounds[1], _Named(work, f"part{i}."))
        parts.append({"label": label, "kind": kind, "sizes": sizes, "bounds": list(bounds)})
    _write_heads(relevance.model, work)
    heads = {
        name: [[labels.index(feature.part), feature.pooling] for feature in head.features]
        for name, head in relevance.model.heads.items()
    }
    return {"parts": parts, "heads": heads}


def _write_part(label: str, part: Relevance, largest: float, work: Work) -> tuple[str, dict[str, int]]:
    if isinstance(part, GivenRelevance) and part.first_image is not None:
        raise _none(label, "vectors of images have none")
    if isinstance(part, VectorRelevance):
        write_array(work, "vectors", np.asarray(part.vectors, "<f4"))
        return "vectors", {}
    if isinstance(part, CiderRelevance):
        return "features", write_features(part, largest, work)
    if isinstance(part, SceneGraphRelevance):
        return "scene_graphs", write_scene_graphs(part, work)
    if isinstance(part, SameImageRelevance):
        return "baseline", {}
    raise _none(label, f"{type(part).__name__} has none")


def _write_heads(model: FuseModel, work: Work) -> None:
    for name, head in model.heads.items():
        leaves = np.add.reduceat(head.trees.nodes[:, 0] < 0, head.trees.roots) if len(head.trees.roots) else [0]
        if (most := int(np.max(leaves))) > LEAVES:
            what = f"a tree of this fuse has {most} leaves, a lookup reads {LEAVES}"
            raise UsageError(what, todo=f"Fit it again with --leaves {LEAVES}, or use a batch plan.")
        write_array(work, f"{name}.weights", np.concatenate([[head.intercept], head.weights]))
        for array, values in head.trees._asdict().items():
            write_array(work, f"{name}.{array}", values)


class _Named(Work):
    """A work folder whose files are written under a prefix."""

    def __init__(self, work: Work, prefix: str) -> None:
        super().__init__(work.folder, work.facts, work.runtime)
        self._work, self._prefix = work, prefix

    def file(self, name: str, write: Callable[[Path], None], rows: int | None = None) -> None:
        """See Work.file."""
        self._work.file(self._prefix + name, write, rows)


def _none(label: str, why: str) -> UsageError:
    what = f"part {label} of this fuse has no lookup: {why}"
    return UsageError(what, todo="Use a batch plan: `relabel export plan`.")
