"""Construction of a lookup: arrays and `lookup.json`, from an encoding and, if there are any, its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.corpus import REFERENCES, Corpus
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import write_neighbours
from relabel.export.params import ExportLookupParams
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.arrays import write_array, write_pieces
from relabel.store.files import sha256_file, write_text
from relabel.store.manifest import Spec
from relabel.store.workdir import Work
from relabel_train.ids import hash_ids
from relabel_train.lookup.format import DESCRIPTION, ArrayEntry, Description

_CHUNK = 1 << 16  # ids in memory as Python objects


def lookup_parameters(source: Source[Any], params: ExportLookupParams) -> dict[str, Any]:
    """Return the parameters of a lookup that can change its arrays."""
    semantic: dict[str, Any] = {"pooling": source.params.pooling, "references": REFERENCES}
    return semantic | ({"dtype": params.dtype} if source.spec.kind == "vectors" else {})


def write_lookup(
    corpus: Corpus,
    source: Source[Any],
    params: Mapping[str, Any],
    artefact: Spec,
    encoding: ArtefactRef,
    neighbours: ArtefactRef | None,
    opened: Callable[[], Relevance],
    work: Work,
) -> None:
    """Write all arrays and then `lookup.json`, which holds their sha256.

    `params`: those of the source as a user wrote them, without paths of this machine. `artefact`: of the
    lookup. `opened`: opens the encoding; called only if its files alone are not enough.
    """
    facts = encoding.manifest.facts
    rows = range(*facts["rows"])
    arrays = source.write_lookup(encoding.folder, encoding.manifest, opened, artefact.semantic, work)
    recorded = {**params, "encoding": encoding.manifest.semantic} | arrays.params
    write_captions(corpus, rows, arrays.failed, work)
    neighbour_entry = None if neighbours is None else write_neighbours(neighbours.folder, neighbours.manifest, work)
    description = Description(
        kind=arrays.kind,
        source=source.spec.name,
        label=artefact.name,
        fingerprint=artefact.fingerprint,
        corpus=corpus.digest,
        encoding=encoding.manifest.fingerprint,
        neighbours=neighbour_entry,
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
        params=recorded,
        arrays=_array_entries(work),
    )
    # A resumed run may have written other arrays than the one before it: the description is never reused.
    write_text(work.folder / DESCRIPTION, description.to_json())
    work.facts |= {
        "label": artefact.name,
        "rows": [rows.start, rows.stop],
        "split": facts["split"],
        "neighbours": neighbour_entry,
        "without_encoding": len(arrays.failed),
    }


def _array_entries(work: Work) -> dict[str, ArrayEntry]:
    """Return type, shape and sha256 of the arrays that are written."""
    entries = {}
    for path in sorted(work.folder.glob("*.npy")):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        entries[path.stem] = ArrayEntry(array.dtype.str, array.shape, sha256_file(path))
    return entries


def write_captions(corpus: Corpus, rows: range, failed: NDArray[np.int32], work: Work) -> None:
    """Write the arrays that describe the captions of any lookup: their images, ids, and which ones failed.

    The arrays are those of every lookup in relabel_train.lookup.format.

    `rows`: rows of the lookup: complete images. `failed`: (F,) int32; rows among them without an encoding.
    """
    image = corpus.image[rows.start : rows.stop]
    first = int(image[0])
    count = int(image[-1]) + 1 - first
    # Rows and images of a lookup are numbered from 0.
    write_array(work, "image", (image - first).astype("<i4"))
    write_array(work, "indptr", (corpus.indptr[first : first + count + 1] - rows.start).astype("<i8"))
    write_array(work, "failed", (failed - rows.start).astype("<i4"))
    ids = {
        "caption_ids": corpus.table["caption_id"].slice(rows.start, len(rows)),
        "image_ids": corpus.table["image_id"].take(pa.array(corpus.indptr[first : first + count])),
    }
    for prefix, column in ids.items():
        _write_ids(prefix, column, work)


def _write_ids(prefix: str, ids: pa.ChunkedArray, work: Work) -> None:
    """Write the arrays of `relabel_train.ids.Ids`, with the ids of one chunk in memory as Python objects."""
    offsets = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(pc.binary_length(ids).to_numpy(), out=offsets[1:])
    hashes = np.concatenate([hash_ids(part) for part in _encoded(ids)])
    order = np.argsort(hashes, kind="stable")
    texts = (np.frombuffer(b"".join(part), np.uint8) for part in _encoded(ids))
    # The types are those of ID_ARRAYS.
    write_pieces(work, f"{prefix}.bytes", "|u1", (int(offsets[-1]),), texts)
    write_array(work, f"{prefix}.offsets", offsets)
    write_array(work, f"{prefix}.hashes", hashes[order])
    write_array(work, f"{prefix}.order", order.astype(np.int32))


def _encoded(ids: pa.ChunkedArray) -> Iterator[list[bytes]]:
    """Yield the UTF-8 of ids, chunk by chunk."""
    for start in range(0, len(ids), _CHUNK):
        yield ids.slice(start, _CHUNK).cast(pa.binary()).to_pylist()
