"""Identity of each caption of a table of neighbours: its id and a digest of its encoding.

A later run keeps the lists whose captions have the same identity. A digest depends on the values of its row alone. It
does not depend on chunks, offsets or slices, on the representation in memory (dictionary, large or view types), on
other rows or on the position of the row.
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

from relabel.core.numeric.csr import indptr_of
from relabel.corpus import Corpus
from relabel.sources.cosine import INDEX
from relabel.sources.shards import FAILED
from relabel.sources.text_reuse import TEXTS
from relabel.store.arrays import combine_chunks
from relabel.store.files import write_plain
from relabel.store.manifest import Manifest, read_manifest

I8 = NDArray[np.int64]
DIGEST_BYTES = 16
KEYS = "keys.parquet"
SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32()),
        pa.field("image", pa.int32()),
        pa.field("caption_id", pa.string()),
        pa.field("digest", pa.binary(DIGEST_BYTES)),
    ]
)
"""One key per candidate: its row and image number in the corpus that was searched, its id, a digest of its encoding."""

_NULLS = b"\xff" * 4  # in place of a length: no layer of a row has 2**32 - 1 bytes
_SHARDING = ("rows", "rows_per_shard", "index")  # parameters of an encoding that change no caption's values
_GROUP = 50_000  # keys per row group


class _Layer(NamedTuple):
    """One level of a column as bytes; row i owns ``data[ends[i]:ends[i + 1]]``.

    `ends`: (N + 1,) int64; positions in bytes.
    `nulls`: True for a layer of validity flags, which only rows with nulls have.
    """

    data: memoryview
    ends: I8
    nulls: bool = False


def digests(columns: Iterable[pa.ChunkedArray]) -> Iterator[bytes]:
    """Compute the digest of each row of columns of equal length.

    `columns`: at least one, each of N values of any type except unions. Yields bytes: BLAKE2b of 16 bytes, N times.
    """
    layers = [layer for column in columns for layer in _layers(combine_chunks(column), np.arange(len(column) + 1))]
    for i in range(len(layers[0].ends) - 1):
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for data, ends, nulls in layers:
            start, stop = int(ends[i]), int(ends[i + 1])
            # A row without nulls has the same digest in a column that has some and in one that has none.
            if nulls and start == stop:
                continue
            # Each layer is preceded by its length, so that no two sequences of layers share their bytes.
            digest.update((_NULLS if nulls else b"") + (stop - start).to_bytes(4, "little"))
            digest.update(data[start:stop])
        yield digest.digest()


def _layers(values: Any, ends: I8, inner: bool = False) -> Iterator[_Layer]:
    """Yield the layers of values from the outermost level inwards; ``values[ends[i]:ends[i + 1]]`` belong to row i.

    The outermost level has no layer of lengths where the length of the next level's bytes implies them.
    """
    values = _canonical(values)
    kind = values.type
    if values.null_count:
        yield _validity(values, ends)
    if pa.types.is_struct(kind):
        for child in values.flatten():
            yield from _layers(child, ends, inner=True)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        if inner or not pa.types.is_primitive(kind.value_type):
            yield _fixed_width(sizes.astype("<i8"), ends)
        yield from _layers(values.flatten(), indptr_of(sizes)[ends], inner=True)
    elif pa.types.is_large_binary(kind):
        filled = pc.fill_null(values, b"")
        offsets = np.frombuffer(filled.buffers()[1], np.int64)[filled.offset : filled.offset + len(filled) + 1]
        if inner:
            yield _fixed_width(np.diff(offsets), ends)
        # A slice shares the buffer of its parent: only its own bytes count.
        data = memoryview(filled.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
        yield _Layer(data, (offsets - offsets[0])[ends])
    elif not pa.types.is_null(kind):
        yield _fixed_width(_primitive(values), ends)


def _canonical(values: Any) -> Any:
    """Reduce equivalent types to one: no dictionaries, extensions, maps, views or one-bit booleans."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _canonical(values.storage)
    if pa.types.is_dictionary(kind):
        return _canonical(values.dictionary_decode())
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
        raise TypeError(f"values of type {values.type} have no digest") from error
    stored = values.buffers()[1]
    stop = (values.offset + len(values)) * width
    raw = np.frombuffer(stored or b"", np.uint8)[values.offset * width : stop].reshape(len(values), width)
    if not values.null_count:
        return raw
    # The bytes below a null are undefined.
    return np.where(values.is_valid().to_numpy(zero_copy_only=False)[:, None], raw, np.uint8(0))


def _fixed_width(values: NDArray[Any], ends: I8) -> _Layer:
    flat = np.ascontiguousarray(values)
    width = flat.itemsize * int(np.prod(flat.shape[1:]))
    return _Layer(flat.reshape(-1).view(np.uint8).data, ends * width)


def _validity(values: Any, ends: I8) -> _Layer:
    """Return a layer of one byte per value for each row that has nulls; other rows have none."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    sizes = np.diff(ends)
    flagged = np.diff(indptr_of(~valid)[ends]) > 0
    flags = valid[np.repeat(flagged, sizes)].astype(np.uint8)
    return _Layer(flags.data, indptr_of(np.where(flagged, sizes, 0)), nulls=True)


def write_keys(path: Path, corpus: Corpus, rows: range, encoding: Path) -> None:
    """Write the keys of some rows; the bytes depend on corpus and encoding alone.

    `rows`: corpus rows, all of them encoded. `encoding`: folder of the encoding.
    """
    manifest = read_manifest(encoding, "encoding")
    digest = pa.array(_encoding_digests(encoding, manifest, rows), pa.binary(DIGEST_BYTES))
    write_plain(path, _key_groups(corpus, rows, digest), SCHEMA)


def keys_bytes(corpus: Corpus, rows: range) -> int:
    """Return the exact bytes of the keys of some rows; they do not depend on the digests."""
    digest = pa.array([bytes(DIGEST_BYTES)] * len(rows), pa.binary(DIGEST_BYTES))
    sink = pa.MockOutputStream()
    write_plain(sink, _key_groups(corpus, rows, digest), SCHEMA)
    return int(sink.size())


def _key_groups(corpus: Corpus, rows: range, digest: pa.Array) -> Iterator[pa.Table]:
    """Return the keys of some rows, cut into row groups."""
    table = corpus.table.slice(rows.start, len(rows)).select(["row", "image", "caption_id"])
    keys = table.append_column(SCHEMA.field("digest"), digest).cast(SCHEMA).combine_chunks()
    return (keys.slice(a, _GROUP) for a in range(0, len(keys), _GROUP))


def read_keys(folder: Path) -> pa.Table:
    """Read the keys of a table of neighbours."""
    return pq.read_table(folder / KEYS)


def shared_digest(encoding: Path) -> str:
    """Return the sha256 of all that the values of every caption depend on: parameters, model, document frequencies."""
    manifest = read_manifest(encoding, "encoding")
    # Shards, their index and the texts they were made of belong to single captions, whose digests cover them.
    files = {n: e.sha256 for n, e in manifest.files.items() if n not in (*manifest.parts, INDEX, TEXTS)}
    semantic = {name: value for name, value in manifest.semantic.items() if name not in _SHARDING}
    body: list[Any] = [semantic, files, manifest.facts.get("documents")]
    # Labels of which it is made, or by which it is gated.
    parts = {name: identity for name, identity in manifest.inputs.items() if name != "corpus"}
    body += [parts] if parts else []
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _encoding_digests(folder: Path, manifest: Manifest, rows: range) -> Iterator[bytes]:
    """Yield the digest of the encoding of each row, in row order, reading one shard at a time."""
    # An encoding without shards is made of other labels, which `shared_digest` covers.
    if not manifest.parts:
        yield from (bytes(DIGEST_BYTES) for _ in rows)
    for name in manifest.parts:
        table = pq.read_table(folder / name)
        row = table["row"].to_numpy()
        lo, hi = np.searchsorted(row, [rows.start, rows.stop]).tolist()
        if lo < hi:
            values = [column for column in table.column_names if column not in ("row", FAILED)]
            yield from digests(table[column].slice(lo, hi - lo) for column in values)
