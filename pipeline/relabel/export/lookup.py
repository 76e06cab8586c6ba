"""The lookup, written: arrays and one description, from an encoding and, if there are any, its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.corpus import REFERENCES, Corpus
from relabel.export.neighbours import write_neighbours
from relabel.export.params import ExportLookupParams
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.arrays import write_array
from relabel.store.atomic import write_text
from relabel.store.manifest import ArtefactSpec, Manifest
from relabel.store.workdir import Work
from relabel_train.ids import Ids
from relabel_train.lookup.format import CAPTIONS, DESCRIPTION, FORMAT, NEIGHBOURS, ArrayEntry, Description, kind_arrays


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
    reason = source.lookup_blocker()
    if reason is not None:
        what = f"{label} ({source.spec.name}) has no lookup: {reason}"
        raise UsageError(what, todo=f"Use a batch plan: `relabel export plan --label {label}`.")


def lookup_spec(
    corpus: Corpus,
    source: Source[Any],
    label: str,
    encoding: Manifest,
    neighbours: Manifest | None,
    params: ExportLookupParams,
) -> ArtefactSpec:
    """Say what a lookup is made of."""
    semantic: dict[str, Any] = {"format": FORMAT, "pooling": source.params.pooling, "references": REFERENCES}
    semantic |= source.lookup_fingerprint_params(params.dtype)
    inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    if neighbours is not None:
        inputs["neighbours"] = neighbours.identity
    return ArtefactSpec("lookup", label, semantic, inputs)


def write_lookup(
    corpus: Corpus,
    source: Source[Any],
    artefact: ArtefactSpec,
    encoding: Made,
    neighbours: Made | None,
    opened: Callable[[], Relevance],
    work: Work,
) -> None:
    """Write every array, then `lookup.json`, which holds their sha256.

    Parameters
    ----------
    corpus, source, artefact
    encoding, neighbours : Made
        Verified.
    opened : callable
        Opens the encoding; called only where its files alone do not do.
    work : Work
    """
    facts = encoding.manifest.facts
    rows = range(*facts["rows"])
    arrays = source.write_lookup(encoding.folder, encoding.manifest, opened, artefact.semantic, work)
    params = source.params.model_dump(mode="json") | {"encoding": encoding.manifest.semantic} | arrays.params
    write_captions(corpus, rows, arrays.failed, work)
    near = None if neighbours is None else write_neighbours(neighbours.folder, neighbours.manifest, work)
    names = CAPTIONS | kind_arrays(arrays.kind, params) | ({} if neighbours is None else NEIGHBOURS)
    about = Description(
        kind=arrays.kind,
        source=source.spec.name,
        label=artefact.name,
        fingerprint=artefact.fingerprint,
        corpus=corpus.digest,
        encoding=encoding.manifest.fingerprint,
        neighbours=near,
        split=facts["split"],
        rows=(rows.start, rows.stop),
        bounds=source.spec.bounds,
        pooling=source.params.pooling,
        poolings=source.spec.poolings,
        references=REFERENCES,
        symmetric=source.spec.symmetric,
        dtype=arrays.dtype,
        sizes=arrays.sizes,
        failed=len(arrays.failed),
        params=params,
        arrays=_entries(work, list(names)),
    )
    work.drop(DESCRIPTION)
    work.file(DESCRIPTION, lambda path: write_text(path, about.to_json()))
    work.facts |= {
        "label": artefact.name,
        "rows": [rows.start, rows.stop],
        "split": facts["split"],
        "neighbours": near,
        "without_encoding": len(arrays.failed),
    }


def _entries(work: Work, names: list[str]) -> dict[str, ArrayEntry]:
    found = {}
    for name in names:
        array = np.load(work.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        found[name] = ArrayEntry(array.dtype.str, array.shape, work.entries()[f"{name}.npy"].sha256)
    return found


def write_captions(corpus: Corpus, rows: range, failed: NDArray[np.int32], work: Work) -> None:
    """Write the arrays of relabel_train.lookup.format.CAPTIONS.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Rows covered: whole images.
    failed : (F,) int32
        Rows among them without an encoding.
    work : Work
    """
    image = corpus.image[rows.start : rows.stop]
    first = int(image[0])
    count = int(image[-1]) + 1 - first
    write_array(work, "image", (image - first).astype("<i4"))
    write_array(work, "indptr", (corpus.indptr[first : first + count + 1] - rows.start).astype("<i8"))
    write_array(work, "failed", (failed - rows.start).astype("<i4"))
    ids = {
        "caption_ids": corpus.caption_ids[rows.start : rows.stop],
        "image_ids": corpus.image_ids[first : first + count],
    }
    for what, names in ids.items():
        for name, array in Ids.of(names).arrays(what).items():
            write_array(work, name, array)
