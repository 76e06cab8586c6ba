"""Rows taken over from an older encoding: a caption whose text was encoded before keeps its vector, or its tuples.

For sources whose rows depend on a caption's text alone. What was encoded is known by digests of the texts, which
lie beside the shards; row numbers of the older corpus mean nothing to the new one.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import RelabelError
from relabel.core.progress import Advance
from relabel.sources.cosine import VectorTasks
from relabel.sources.shards import FAILED, ShardTasks, read_failed_rows
from relabel.store.atomic import write_text
from relabel.store.fixed_parquet import plain_bytes, write_plain
from relabel.store.manifest import Manifest, open_artefact
from relabel.store.tasks import Tasks
from relabel.store.workdir import Work

TEXTS = "texts.parquet"
"""Beside the shards: row int32, and a digest of the text that was encoded (16 bytes)."""
_REUSE = "reuse.json"
_CUT = ("rows", "rows_per_shard", "index")  # what changes no vector
_SCHEMA = pa.schema([pa.field("row", pa.int32()), pa.field("digest", pa.binary(16))])

Numbers = NDArray[np.int64]


class TextReuseTasks(ShardTasks):
    """Work on rows that depend on a caption's text alone."""

    _older: tuple[Path, dict[str, Any]] | None = None

    def read_texts(self) -> list[str]:
        """Return the text of each row as it is encoded."""
        return self.corpus.texts[self.rows.start : self.rows.stop]

    def set_previous(self, out: Path, semantic: dict[str, Any]) -> None:
        """Name the place of an encoding that may be older, and what the new one's vectors depend on."""
        self._older = out, semantic

    def start(self, work: Work) -> None:
        """Write the digests of all texts; see which of them an older encoding holds."""
        super().start(work)
        table = _texts_table(self.rows, self.read_texts())
        work.file(TEXTS, lambda path: write_plain(path, [table], _SCHEMA), rows=len(self.rows))
        older = _open(*self._older) if self._older is not None else None
        found = {"from": None, "captions": 0} if older is None else _found(older, table)
        work.runtime["reused"] = found
        write_text(work.folder / _REUSE, json.dumps(found))

    def previous(self, work: Work) -> PreviousEncoding | None:
        """Open the older encoding that this work takes rows from; None if it takes none."""
        found = json.loads((work.folder / _REUSE).read_text(encoding="utf-8"))
        return None if found["from"] is None else self._old

    @cached_property
    def _old(self) -> PreviousEncoding:
        assert self._older is not None
        found = _open(*self._older)
        assert found is not None
        return found


class TextTasks(TextReuseTasks, VectorTasks):
    """Work on vectors that depend on a caption's text alone."""

    @abstractmethod
    def encoded(self, rows: Numbers, advance: Advance) -> pa.Table:
        """Encode the captions at n >= 1 corpus rows: a shard's columns, in the order of `rows`."""

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make one shard: see `encoded`."""
        every = np.arange(rows.start, rows.stop)
        older = self.previous(work)
        if older is None:
            return self.encoded(every, advance)
        digests = pq.read_table(work.folder / TEXTS)["digest"].slice(rows.start - self.rows.start, len(rows))
        places = older.positions(digests)
        known, new = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        if not len(known):
            return self.encoded(every, advance)
        old = older.take(places[known])
        fresh = self.encoded(every[new], advance) if len(new) else old.slice(0, 0)
        return _joined(old, known, fresh, new, every)


def with_text_reuse(make: Callable[[], Tasks], out: Path, semantic: dict[str, Any]) -> Tasks:
    """Make tasks, and let them take over what an older encoding at `out` holds, if their kind can."""
    tasks = make()
    if isinstance(tasks, TextReuseTasks):
        tasks.set_previous(out, semantic)
    return tasks


def text_digests(texts: Iterable[str]) -> pa.Array:
    """Digest texts, as they lie in `TEXTS`."""
    found = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
    return pa.array(found, pa.binary(16))


def text_digest_bytes(rows: int) -> int:
    """Bytes of the digests of some captions' texts."""
    digest = pa.array([bytes(16)] * rows, pa.binary(16))
    return plain_bytes(pa.table([pa.array(np.zeros(rows, np.int32)), digest], schema=_SCHEMA))


class PreviousEncoding:
    """An older encoding, by the digests of its texts; failed rows are not known."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        table = pq.read_table(folder / TEXTS)
        row, failed = table["row"].to_numpy(), read_failed_rows(folder, manifest)
        self._usable = ~np.isin(row, failed)
        self._digests = table["digest"].combine_chunks()
        self._last: tuple[str, pa.Table] | None = None

    def positions(self, digests: pa.ChunkedArray | pa.Array) -> Numbers:
        """Where each text stands in the older encoding, -1 where it does not."""
        usable = np.flatnonzero(self._usable)
        at = pc.fill_null(pc.index_in(digests, value_set=self._digests.take(pa.array(usable))), -1).to_numpy()
        places: Numbers = np.where(at >= 0, usable[at], -1) if len(usable) else np.full(len(digests), -1)
        return places

    def take(self, places: Numbers) -> pa.Table:
        """Read n values, in the order of `places`, as a shard's columns without `row`."""
        order, start, pieces = np.argsort(places, kind="stable"), 0, []
        ascending = places[order]
        for name in self.manifest.parts:
            rows = self.manifest.files[name].rows or 0
            lo, hi = np.searchsorted(ascending, [start, start + rows]).tolist()
            if lo < hi:
                pieces.append(self._part(name).take(pa.array(ascending[lo:hi] - start)))
            start += rows
        return pa.concat_tables(pieces).take(pa.array(np.argsort(order, kind="stable")))

    def _part(self, name: str) -> pa.Table:
        """Read a shard; the last one is kept."""
        if self._last is None or self._last[0] != name:
            table = pq.read_table(self.folder / name)
            self._last = name, table.drop_columns([c for c in ("row", FAILED) if c in table.column_names])
        return self._last[1]


def _open(folder: Path, semantic: dict[str, Any]) -> PreviousEncoding | None:
    """Open an older encoding whose vectors depend on the same; None where there is none."""
    try:
        manifest = open_artefact(folder, "encoding")
    except RelabelError:
        return None
    if TEXTS not in manifest.files or _uncut(manifest.semantic) != _uncut(semantic):
        return None
    return PreviousEncoding(folder, manifest)


def _found(older: PreviousEncoding, table: pa.Table) -> dict[str, Any]:
    count = int((older.positions(table["digest"]) >= 0).sum())
    return {"from": older.manifest.fingerprint if count else None, "captions": count}


def _uncut(semantic: dict[str, Any]) -> Any:
    return json.loads(json.dumps({name: value for name, value in semantic.items() if name not in _CUT}))


def _texts_table(rows: range, texts: Iterable[str]) -> pa.Table:
    row = pa.array(np.arange(rows.start, rows.stop, dtype=np.int32))
    return pa.table([row, text_digests(texts)], schema=_SCHEMA)


def _joined(old: pa.Table, known: Numbers, fresh: pa.Table, new: Numbers, rows: Numbers) -> pa.Table:
    """Join what was known and what is new to one shard, in row order."""
    order = pa.array(np.argsort(np.concatenate([known, new]), kind="stable"))
    names = [name for name in fresh.column_names if name not in ("row", FAILED)]
    columns: dict[str, Any] = {"row": rows.astype(np.int32)}
    for name in names:
        both = pa.chunked_array([*old[name].chunks, *fresh[name].chunks], old[name].type)
        columns[name] = both.take(order).combine_chunks()
    if FAILED in fresh.column_names:
        none = pa.chunked_array([pa.nulls(len(old), pa.string()), *fresh[FAILED].chunks])
        columns[FAILED] = none.take(order).combine_chunks()
    return pa.table(columns)
