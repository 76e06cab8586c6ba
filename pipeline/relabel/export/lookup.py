"""The lookup, written: arrays and one description, from an encoding and, if there are any, its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relabel.corpus import REFERENCES, Corpus
from relabel.errors import UsageError
from relabel.export.captions import write_captions
from relabel.export.features import write_features
from relabel.export.neighbours import write_neighbours
from relabel.export.params import ExportLookupParams
from relabel.export.vectors import write_vectors
from relabel.sources.base import Relevance, Source
from relabel.sources.shards import failed_rows
from relabel.store.atomic import write_text
from relabel.store.manifest import Draft, Manifest
from relabel.store.work import Work
from relabel_train.lookup.format import CAPTIONS, DESCRIPTION, FORMAT, NEIGHBOURS, ArrayEntry, Description, kind_arrays

_DTYPES = {"float32": "<f4", "float16": "<f2"}


@dataclass(frozen=True)
class Made:
    """An artefact that a lookup is made from."""

    folder: Path
    manifest: Manifest


def refuse_without_lookup(source: Source[Any], label: str) -> None:
    """Refuse sources that no lookup can answer for.

    Raises
    ------
    UsageError
        If the source scores pair by pair, is made of a label that does, or has vectors of images.
    """
    reason = source.no_lookup()
    if reason is not None:
        what = f"{label} ({source.name}) has no lookup: {reason}"
        raise UsageError(what, todo=f"Use a batch plan: `relabel export plan --label {label}`.")


def lookup_draft(
    corpus: Corpus,
    source: Source[Any],
    label: str,
    encoding: Manifest,
    neighbours: Manifest | None,
    params: ExportLookupParams,
) -> Draft:
    """Say what a lookup is made of."""
    semantic: dict[str, Any] = {"format": FORMAT, "pooling": source.params.pooling, "references": REFERENCES}
    if source.kind == "vectors":
        semantic["dtype"] = params.dtype
    inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    if neighbours is not None:
        inputs["neighbours"] = neighbours.identity
    return Draft("lookup", label, semantic, inputs)


def write_lookup(
    corpus: Corpus,
    source: Source[Any],
    draft: Draft,
    encoding: Made,
    neighbours: Made | None,
    opened: Callable[[], Relevance],
    work: Work,
) -> None:
    """Write every array, then `lookup.json`, which holds their sha256.

    Parameters
    ----------
    corpus, source, draft
    encoding, neighbours : Made
        Verified.
    opened : callable
        Opens the encoding; called only where its files alone do not do.
    work : Work
    """
    facts = encoding.manifest.facts
    rows = range(*facts["rows"])
    failed = failed_rows(encoding.folder, encoding.manifest)
    params = source.params.model_dump(mode="json") | {"encoding": encoding.manifest.semantic}
    sizes: dict[str, int] = {}
    if source.kind == "others":
        from relabel.export.others import write_others

        relevance = opened()
        params["fuse"], failed = write_others(relevance, work), relevance.failed
        kind, dtype = "others", "float64"
    else:
        kind, dtype, sizes = _write_kind(source, draft, encoding, opened, work)
    write_captions(corpus, rows, failed, work)
    near = None if neighbours is None else write_neighbours(neighbours.folder, neighbours.manifest, work)
    names = CAPTIONS | kind_arrays(kind, params) | ({} if neighbours is None else NEIGHBOURS)
    about = Description(
        kind=kind,
        source=source.name,
        label=draft.name,
        fingerprint=draft.fingerprint,
        corpus=corpus.digest,
        encoding=encoding.manifest.fingerprint,
        neighbours=near,
        split=facts["split"],
        rows=(rows.start, rows.stop),
        bounds=source.bounds,
        pooling=source.params.pooling,
        poolings=tuple(p for p in ("paired", "max", "mean", "refs") if p not in source.refused),
        references=REFERENCES,
        symmetric=source.symmetric,
        dtype=dtype,
        sizes=sizes,
        failed=len(failed),
        params=params,
        arrays=_entries(work, list(names)),
    )
    work.drop(DESCRIPTION)
    work.file(DESCRIPTION, lambda path: write_text(path, about.to_json()))
    work.facts |= {
        "label": draft.name,
        "rows": [rows.start, rows.stop],
        "split": facts["split"],
        "neighbours": near,
        "without_encoding": len(failed),
    }


def _write_kind(
    source: Source[Any],
    draft: Draft,
    encoding: Made,
    opened: Callable[[], Relevance],
    work: Work,
) -> tuple[str, str, dict[str, int]]:
    """Write the arrays of one of `KINDS`; return which, the dtype of what is stored, and the kind's sizes."""
    if source.kind == "vectors":
        dtype = str(draft.semantic["dtype"])
        write_vectors(encoding.folder, encoding.manifest, _DTYPES[dtype], work)
        return "vectors", dtype, {}
    if source.kind == "features":
        from relabel.export.scene_graphs import write_scene_graphs
        from relabel.sources.scene_graphs.relevance import SceneGraphRelevance

        relevance = opened()
        if isinstance(relevance, SceneGraphRelevance):
            return "scene_graphs", "int32", write_scene_graphs(relevance, work)
        return "features", "float64", write_features(relevance, source.bounds[1], work)
    return "baseline", "bool", {}


def _entries(work: Work, names: list[str]) -> dict[str, ArrayEntry]:
    found = {}
    for name in names:
        array = np.load(work.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        found[name] = ArrayEntry(array.dtype.str, array.shape, work.entries()[f"{name}.npy"].sha256)
    return found
