"""Construction of a lookup, arrays and `lookup.json`, from an encoding and an optional neighbour table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from relabel.core.numeric.csr import indptr_of
from relabel.corpus import REFERENCES, Corpus
from relabel.export.base import ExportInputs
from relabel.export.neighbours import write_neighbours
from relabel.export.params import ExportLookupParams
from relabel.sources.base import Source
from relabel.store.arrays import write_array, write_pieces
from relabel.store.files import write_text
from relabel.store.manifest import Spec
from relabel.store.workdir import Work
from relabel_train.files import sha256_file
from relabel_train.ids import hash_ids
from relabel_train.lookup.format import CAPTIONS, DESCRIPTION, ArrayEntry, Description
from relabel_train.scoring.calibration import CalibrationCurve

_CHUNK = 1 << 16  # number of ids in memory as Python objects


def lookup_parameters(source: Source[Any], params: ExportLookupParams) -> dict[str, Any]:
    """Return the parameters of a lookup that can change its arrays."""
    config: dict[str, Any] = {"pooling": source.params.pooling, "references": REFERENCES}
    return config | ({"dtype": params.dtype} if source.spec.kind == "vectors" else {})


def write_lookup(inputs: ExportInputs, artefact: Spec, work: Work, curve: CalibrationCurve | None = None) -> None:
    """Write all arrays and then `lookup.json` with their sha256.

    The encoding is opened only if its files are not sufficient. `artefact`: spec of the lookup. `curve`: calibration
    curve of the label.
    """
    source, encoding, metadata = inputs.source, inputs.encoding.manifest, inputs.encoding.manifest.metadata
    rows = range(*metadata["rows"])
    arrays = source.write_lookup(inputs.encoding.folder, encoding, inputs.open_relevance, artefact.config, work)
    write_captions(inputs.corpus, rows, arrays.failed, work)
    near = None if inputs.neighbours is None else write_neighbours(inputs.neighbours, work)
    description = Description(
        kind=arrays.kind,
        source=source.spec.name,
        label=artefact.name,
        fingerprint=artefact.fingerprint,
        corpus=inputs.corpus.digest,
        encoding=encoding.fingerprint,
        neighbours=near,
        split=metadata["split"],
        rows=(rows.start, rows.stop),
        bounds=source.spec.bounds,
        pooling=source.params.pooling,
        poolings=source.spec.poolings,
        references=REFERENCES,
        symmetric=source.spec.symmetric,
        dtype=arrays.dtype,
        sizes=arrays.sizes,
        failed=len(arrays.failed),
        curve=curve,
        params={**inputs.params, "encoding": encoding.config} | arrays.params,
        arrays=_array_entries(work),
    )
    # Always written again, because a resumed run may have written different arrays than the run before.
    write_text(work.folder / DESCRIPTION, description.to_json())
    work.metadata |= {
        "label": artefact.name,
        "rows": [rows.start, rows.stop],
        "split": metadata["split"],
        "neighbours": near,
        "without_encoding": len(arrays.failed),
    }


def _array_entries(work: Work) -> dict[str, ArrayEntry]:
    """Return dtype, shape and sha256 of all arrays in the work folder."""
    entries = {}
    for path in sorted(work.folder.glob("*.npy")):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        entries[path.stem] = ArrayEntry(array.dtype.str, array.shape, sha256_file(path))
    return entries


def write_captions(corpus: Corpus, rows: range, failed: NDArray[np.int32], work: Work) -> None:
    """Write the arrays that all lookups have: images, ids and failed captions (see relabel_train.lookup.format).

    `rows`: rows of the lookup, of complete images. `failed`: (F,) int32; rows without an encoding.
    """
    images = corpus.images_of(rows)
    starts = corpus.indptr[images.start : images.stop + 1]
    # A lookup numbers its rows and images from 0.
    write_array(work, "image", (corpus.image[rows.start : rows.stop] - np.int32(images.start)).astype("<i4"))
    write_array(work, "indptr", (starts - rows.start).astype("<i8"))
    write_array(work, "failed", (failed - rows.start).astype("<i4"))
    work.file(CAPTIONS, partial(_write_csv, corpus, rows))
    texts = corpus.table["text"].slice(rows.start, len(rows))
    hashes = (hash_ids([text.strip().encode() for text in part]) for part in _parts(texts))
    write_pieces(work, "texts", "<u8", (len(rows),), hashes)
    _write_ids("caption_ids", corpus.table["caption_id"].slice(rows.start, len(rows)), work)
    _write_ids("image_ids", corpus.table["image_id"].take(pa.array(starts[:-1])), work)


def _write_ids(prefix: str, ids: pa.ChunkedArray, work: Work) -> None:
    """Write the arrays of `relabel_train.ids.Ids`. Only one chunk of ids at a time is in memory as Python objects."""
    offsets = indptr_of(pc.binary_length(ids).to_numpy())
    hashes = np.concatenate([hash_ids(part) for part in _encoded(ids)])
    order = np.argsort(hashes, kind="stable")
    texts = (np.frombuffer(b"".join(part), np.uint8) for part in _encoded(ids))
    # The dtypes are those of ID_ARRAYS.
    write_pieces(work, f"{prefix}.bytes", "|u1", (int(offsets[-1]),), texts)
    write_array(work, f"{prefix}.offsets", offsets)
    write_array(work, f"{prefix}.hashes", hashes[order])
    write_array(work, f"{prefix}.order", order.astype(np.int32))


def _write_csv(corpus: Corpus, rows: range, path: Path) -> None:
    """Write the captions as CSV, for readers in other languages."""
    names = ("caption_id", "image_id", "position", "text")
    table = corpus.table.select(names).slice(rows.start, len(rows))
    csv.write_csv(table, path)


def _encoded(ids: pa.ChunkedArray) -> Iterator[list[bytes]]:
    """Yield ids as UTF-8 bytes in chunks."""
    return _parts(ids.cast(pa.binary()))


def _parts(column: pa.ChunkedArray) -> Iterator[list[Any]]:
    """Yield the values of a column in chunks."""
    for start in range(0, len(column), _CHUNK):
        yield column.slice(start, _CHUNK).to_pylist()
