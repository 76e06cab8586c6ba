"""What a table of neighbours was made of, caption by caption: so that a later run knows what it may keep.

Nothing is trusted by its position: a caption is known by its id, its encoding by a digest of its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.sources.reuse import TEXTS
from relabel.sources.vectors import INDEX
from relabel.store.manifest import Manifest, read_manifest
from relabel.store.plain import write_plain

KEYS = "keys.parquet"
SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32()),
        pa.field("image", pa.int32()),
        pa.field("caption_id", pa.string()),
        pa.field("digest", pa.binary(16)),
    ]
)
"""One line a caption that was searched: its row and its image's number then, and a digest of what encoded it."""

_CUT = ("rows", "rows_per_shard", "index")  # how an encoding is cut and indexed changes no caption's values
_LINES = 50_000


def write_keys(path: Path, corpus: Corpus, rows: range, encoding: Path) -> None:
    """Write the keys of some rows; the bytes depend on corpus and encoding alone.

    Parameters
    ----------
    path : Path
    corpus : Corpus
    rows : range
        Corpus rows, all of them encoded.
    encoding : Path
        Folder of the encoding.
    """
    manifest = read_manifest(encoding, "encoding")
    digest = pa.array((d for d in _digests(encoding, manifest, rows)), pa.binary(16))
    table = corpus.table.slice(rows.start, len(rows)).select(["row", "image", "caption_id"])
    whole = table.append_column(SCHEMA.field("digest"), digest).cast(SCHEMA).combine_chunks()
    write_plain(path, (whole.slice(a, _LINES) for a in range(0, len(whole), _LINES)), SCHEMA)


def keys_bytes(corpus: Corpus, rows: range) -> int:
    """Bytes of the keys of some rows: exact, by writing digests of zeros to nowhere."""
    table = corpus.table.slice(rows.start, len(rows)).select(["row", "image", "caption_id"])
    digest = pa.array([bytes(16)] * len(rows), pa.binary(16))
    whole = table.append_column(SCHEMA.field("digest"), digest).cast(SCHEMA).combine_chunks()
    sink = pa.MockOutputStream()
    write_plain(sink, (whole.slice(a, _LINES) for a in range(0, len(whole), _LINES)), SCHEMA)
    return int(sink.size())


def read_keys(folder: Path) -> pa.Table:
    """Read the keys of an artefact."""
    return pq.read_table(folder / KEYS)


def shared(encoding: Path) -> str:
    """sha256 of what the values of all captions share: parameters, model, vocabulary with document frequencies."""
    manifest = read_manifest(encoding, "encoding")
    files = {n: e.sha256 for n, e in manifest.files.items() if n not in (*manifest.parts, INDEX, TEXTS)}
    semantic = {name: value for name, value in manifest.semantic.items() if name not in _CUT}
    body: list[Any] = [semantic, files, manifest.facts.get("documents")]
    parts = {name: identity for name, identity in manifest.inputs.items() if name != "corpus"}
    body += [parts] if parts else []  # labels that it is made of or gated by
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _digests(folder: Path, manifest: Manifest, rows: range) -> Iterator[bytes]:
    """Digest of the encoding of each row, in row order; shard by shard. One that has no files: see `shared`."""
    if not manifest.parts:
        yield from (bytes(16) for _ in rows)
    for name in manifest.parts:
        table = pq.read_table(folder / name)
        row = table["row"].to_numpy()
        lo, hi = np.searchsorted(row, [rows.start, rows.stop]).tolist()
        if lo == hi:
            continue
        values = [c for c in table.column_names if c != "row" and not pa.types.is_string(table[c].type)]
        columns = [_bytes(table[c].slice(lo, hi - lo)) for c in values]
        for i in range(hi - lo):
            digest = hashlib.blake2b(digest_size=16)
            for data, ends in columns:
                digest.update(int(ends[i + 1] - ends[i]).to_bytes(4, "little"))
                digest.update(data[ends[i] : ends[i + 1]])
            yield digest.digest()


def _bytes(column: pa.ChunkedArray) -> tuple[memoryview, NDArray[np.int64]]:
    """Lay out a column's n values end to end; value i is ``data[ends[i]:ends[i + 1]]``."""
    kind: Any = column.type
    if pa.types.is_list(kind):
        sizes = pc.list_value_length(column).to_numpy()
    else:
        sizes = np.full(len(column), kind.list_size if pa.types.is_fixed_size_list(kind) else 1)
    nested = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    flat = (pc.list_flatten(column) if nested else column).to_numpy()
    ends = np.zeros(len(column) + 1, np.int64)
    np.cumsum(sizes * flat.itemsize, out=ends[1:])
    return np.ascontiguousarray(flat).view(np.uint8).data, ends
