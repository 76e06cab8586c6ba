"""Identity of each caption of a neighbour table: its id and a digest of its encoding. A later run can reuse lists.

A digest depends on the values of its row alone. It does not depend on chunks, offsets or slices, on the encoding in
memory (dictionary, large or view types), on other rows or on the position of the row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.sources.cosine import INDEX
from relabel.sources.shards import FAILED
from relabel.sources.text_reuse import TEXTS
from relabel.store.fixed_parquet import write_plain
from relabel.store.manifest import Manifest, read_manifest

DIGEST_BYTES = 16
_NULLS = b"\xff" * 4  # no layer of a row has 2**32 - 1 bytes
Ends = NDArray[np.int64]


class _Layer(NamedTuple):
    """One level of a column as bytes; row i owns ``data[ends[i]:ends[i + 1]]``.

    Attributes
    ----------
    data : memoryview
    ends : (N + 1,) int64
        Positions in bytes.
    nulls : bool
        True for a layer of validity flags, which only rows with nulls have.
    """

    data: memoryview
    ends: Ends
    nulls: bool = False


def digests(columns: Iterable[pa.ChunkedArray]) -> Iterator[bytes]:
    """Compute the digest of each row of some columns of equal length.

    Parameters
    ----------
    columns : iterable of pyarrow.ChunkedArray
        At least one, each of N values of any type except unions.

    Yields
    ------
    bytes
        BLAKE2b of 16 bytes, N times.

    Raises
    ------
    TypeError
        If a column holds values of a type that has no layout here.
    """
    layers = [layer for column in columns for layer in _layers(_whole(column), np.arange(len(column) + 1))]
    for i in range(len(layers[0].ends) - 1):
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for data, ends, nulls in layers:
            start, stop = int(ends[i]), int(ends[i + 1])
            if nulls and start == stop:
                continue
            digest.update((_NULLS if nulls else b"") + (stop - start).to_bytes(4, "little"))
            digest.update(data[start:stop])
        yield digest.digest()


def _layers(values: Any, ends: Ends, inner: bool = False) -> Iterator[_Layer]:
    """Lay out values from the outermost level inwards; ``values[ends[i]:ends[i + 1]]`` belong to row i.

    Lengths are left out of the outermost level where the bytes of the next level imply them.
    """
    values = _plain(values)
    kind = values.type
    if values.null_count:
        yield _validity(values, ends)
    if pa.types.is_struct(kind):
        for child in values.flatten():
            yield from _layers(child, ends, inner=True)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        if inner or not pa.types.is_primitive(kind.value_type):
            yield _fixed(sizes.astype("<i8"), ends)
        yield from _layers(values.flatten(), _cumulated(sizes)[ends], inner=True)
    elif pa.types.is_large_binary(kind):
        filled = pc.fill_null(values, b"")
        offsets = np.frombuffer(filled.buffers()[1], np.int64)[filled.offset : filled.offset + len(filled) + 1]
        if inner:
            yield _fixed(np.diff(offsets), ends)
        data = memoryview(filled.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
        yield _Layer(data, (offsets - offsets[0])[ends])
    elif not pa.types.is_null(kind):
        yield _fixed(_primitive(values), ends)


def _plain(values: Any) -> Any:
    """Reduce equivalent types to one: no dictionaries, extensions, maps, views or booleans of one bit."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(values.storage)
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return values.cast(pa.list_(entry))
    if pa.types.is_boolean(kind):
        return values.cast(pa.uint8())
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    if any(is_text(kind) for is_text in texts):
        return values.cast(pa.large_binary())
    return values


def _primitive(values: Any) -> NDArray[np.uint8]:
    """Return the bytes of N values of fixed width, (N, width) uint8; zeros for nulls."""
    try:
        width = values.type.bit_width // 8
    except ValueError as error:
        raise TypeError(f"no digest of values of type {values.type}") from error
    stored = values.buffers()[1]
    stop = (values.offset + len(values)) * width
    raw = np.frombuffer(stored or b"", np.uint8)[values.offset * width : stop].reshape(len(values), width)
    if not values.null_count:
        return raw
    return np.where(values.is_valid().to_numpy(zero_copy_only=False)[:, None], raw, np.uint8(0))


def _fixed(values: NDArray[Any], ends: Ends) -> _Layer:
    flat = np.ascontiguousarray(values)
    width = flat.itemsize * int(np.prod(flat.shape[1:]))
    return _Layer(flat.reshape(-1).view(np.uint8).data, ends * width)


def _validity(values: Any, ends: Ends) -> _Layer:
    """Flag the valid values of each row that has nulls, a byte each; a row without nulls has no flags."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    sizes = np.diff(ends)
    flagged = np.diff(_cumulated(~valid)[ends]) > 0
    flags = valid[np.repeat(flagged, sizes)].astype(np.uint8)
    return _Layer(flags.data, _cumulated(np.where(flagged, sizes, 0)), nulls=True)


def _cumulated(sizes: NDArray[Any]) -> Ends:
    out = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def _whole(column: pa.ChunkedArray) -> Any:
    """Return a column as one array."""
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


KEYS = "keys.parquet"
SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32()),
        pa.field("image", pa.int32()),
        pa.field("caption_id", pa.string()),
        pa.field("digest", pa.binary(DIGEST_BYTES)),
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
    digest = pa.array((d for d in _digests(encoding, manifest, rows)), pa.binary(DIGEST_BYTES))
    table = corpus.table.slice(rows.start, len(rows)).select(["row", "image", "caption_id"])
    whole = table.append_column(SCHEMA.field("digest"), digest).cast(SCHEMA).combine_chunks()
    write_plain(path, (whole.slice(a, _LINES) for a in range(0, len(whole), _LINES)), SCHEMA)


def keys_bytes(corpus: Corpus, rows: range) -> int:
    """Bytes of the keys of some rows: exact, by writing digests of zeros to nowhere."""
    table = corpus.table.slice(rows.start, len(rows)).select(["row", "image", "caption_id"])
    digest = pa.array([bytes(DIGEST_BYTES)] * len(rows), pa.binary(DIGEST_BYTES))
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
        yield from (bytes(DIGEST_BYTES) for _ in rows)
    for name in manifest.parts:
        table = pq.read_table(folder / name)
        row = table["row"].to_numpy()
        lo, hi = np.searchsorted(row, [rows.start, rows.stop]).tolist()
        if lo < hi:
            values = [column for column in table.column_names if column not in ("row", FAILED)]
            yield from digests(table[column].slice(lo, hi - lo) for column in values)
