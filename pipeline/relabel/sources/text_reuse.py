"""Reuse of rows from a previous encoding: a caption whose text was encoded before keeps its vector, or its tuples.

This applies to sources whose rows depend on a caption's text alone. Texts are identified by digests that lie beside the
shards, because row numbers of another corpus mean nothing.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import RelabelError
from relabel.core.runtime import Advance
from relabel.sources.cosine import VectorTasks
from relabel.sources.shards import FAILED, ShardTasks, read_failed_rows
from relabel.store.files import plain_bytes, write_plain, write_text
from relabel.store.manifest import Manifest, open_artefact
from relabel.store.tasks import Blocks, Task, exclude_blocks
from relabel.store.workdir import Work

TEXTS = "texts.parquet"
"""File beside the shards, with the columns row (int32) and digest (16 bytes) of the encoded text."""
_REUSE = "reuse.json"
_NO_EFFECT = ("rows", "rows_per_shard", "index")  # semantic parameters that change no row
_SCHEMA = pa.schema([pa.field("row", pa.int32()), pa.field("digest", pa.binary(16))])

Numbers = NDArray[np.int64]


class TextReuseTasks(ShardTasks):
    """Work on rows that depend on a caption's text alone."""

    _previous: tuple[Path, dict[str, Any]] | None = None

    def read_texts(self) -> list[str]:
        """Return the text of each row as it is encoded."""
        return self.corpus.texts[self.rows.start : self.rows.stop]

    @override
    def set_previous(self, out: Path, semantic: dict[str, Any]) -> None:
        """Let rows be copied if all parameters but the range of rows, the shard size and the index are equal."""
        self._previous = out, semantic

    def start(self, work: Work) -> None:
        """Write the digests of all texts, and record how many of them the previous encoding holds."""
        super().start(work)
        table = _texts_table(self.rows, self.read_texts())
        work.file(TEXTS, lambda path: write_plain(path, [table], _SCHEMA), rows=len(self.rows))
        previous = _open_previous(*self._previous) if self._previous is not None else None
        reused = {"from": None, "captions": 0} if previous is None else _reuse_fact(previous, table)
        work.runtime["reused"] = reused
        if previous is not None:
            share = int(reused["captions"] or 0) / len(previous)
            work.runtime["reused_seconds"] = seconds_of_rows(previous.manifest) * share
        write_text(work.folder / _REUSE, json.dumps(reused))

    def previous(self, work: Work) -> PreviousEncoding | None:
        """Open the previous encoding that rows are taken from; None if no row is."""
        reused = json.loads((work.folder / _REUSE).read_text(encoding="utf-8"))
        return None if reused["from"] is None else self._opened_previous

    @cached_property
    def _opened_previous(self) -> PreviousEncoding:
        """Previous encoding, opened once."""
        assert self._previous is not None
        previous = _open_previous(*self._previous)
        assert previous is not None
        return previous


class TextTasks(TextReuseTasks, VectorTasks):
    """Work on vectors that depend on a caption's text alone.

    Where a vector has the same bytes in any batch, a shard is encoded in saved blocks, so that an interrupted run loses
    one block at most.
    """

    _blocks: Blocks | None = None  # of the current shard

    def has_batch_invariant_rows(self) -> bool:
        """Return whether the bytes of a row do not depend on the rows that are encoded with it."""
        return False

    @abstractmethod
    def encode_rows(self, rows: Numbers, advance: Advance) -> pa.Table:
        """Encode the captions of n >= 1 corpus rows.

        `rows`: (n,) int64. `advance`: receives the number of further captions that are done. Returns pyarrow.Table: the
        columns of a shard, in the order of `rows`.
        """

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Encode the rows of a shard whose texts are new, and copy the others from the previous encoding."""
        numbers = np.arange(rows.start, rows.stop)
        previous = self.previous(work)
        if previous is None:
            return self._encode_in_blocks(work, numbers, advance)
        digests = pq.read_table(work.folder / TEXTS)["digest"].slice(rows.start - self.rows.start, len(rows))
        positions = previous.positions(digests)
        reused, new = np.flatnonzero(positions >= 0), np.flatnonzero(positions < 0)
        # No text of this shard is in the previous encoding.
        if not len(reused):
            return self._encode_in_blocks(work, numbers, advance)
        old_rows = previous.take(positions[reused])
        fresh = self._encode_in_blocks(work, numbers[new], advance) if len(new) else old_rows.slice(0, 0)
        return _join_rows(old_rows, reused, fresh, new, numbers)

    @override
    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the file of one task. The blocks of a complete shard are removed."""
        super().make(work, task, advance)
        if self._blocks is not None:
            self._blocks.drop()
            self._blocks = None

    @override
    def finish(self, work: Work) -> None:
        """Record the failed rows, and leave the blocks of a killed run out of the artefact."""
        super().finish(work)
        exclude_blocks(work)

    def _encode_in_blocks(self, work: Work, rows: Numbers, advance: Advance) -> pa.Table:
        """Encode the captions of some rows block by block; blocks of an interrupted run are read."""
        if not self.has_batch_invariant_rows():
            return self.encode_rows(rows, advance)
        shard = next(name for name, part in self.parts.items() if rows[0] in part)
        self._blocks = Blocks(work, shard)
        return self._blocks.make(rows, lambda numbers: self.encode_rows(numbers, advance), advance)


def text_digests(texts: Iterable[str]) -> pa.Array:
    """Return the digests of texts as they are stored in `TEXTS`."""
    digests = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
    return pa.array(digests, pa.binary(16))


def text_digest_bytes(rows: int) -> int:
    """Return the size in bytes of the digests file for a number of rows."""
    digest = pa.array([bytes(16)] * rows, pa.binary(16))
    return plain_bytes(pa.table([pa.array(np.zeros(rows, np.int32)), digest], schema=_SCHEMA))


class PreviousEncoding:
    """A previous encoding, addressed by the digests of its texts. Failed rows are left out."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        table = pq.read_table(folder / TEXTS)
        row, failed = table["row"].to_numpy(), read_failed_rows(folder, manifest)
        self._usable = ~np.isin(row, failed)
        self._digests = table["digest"].combine_chunks()
        self._last: tuple[str, pa.Table] | None = None

    def __len__(self) -> int:
        return len(self._digests)

    def positions(self, digests: pa.ChunkedArray | pa.Array) -> Numbers:
        """Return the position of each text in the previous encoding, -1 if it is absent: (n,) int64."""
        # Digests of failed rows are no candidates, so their texts are encoded again.
        usable = np.flatnonzero(self._usable)
        match = pc.fill_null(pc.index_in(digests, value_set=self._digests.take(pa.array(usable))), -1).to_numpy()
        positions: Numbers = np.where(match >= 0, usable[match], -1) if len(usable) else np.full(len(digests), -1)
        return positions

    def take(self, positions: Numbers) -> pa.Table:
        """Read n rows in the order of `positions`, as the columns of a shard without `row`."""
        # Shards are read once each, in ascending order; the result is then put back into the requested order.
        order, start, pieces = np.argsort(positions, kind="stable"), 0, []
        ascending = positions[order]
        for name in self.manifest.parts:
            rows = self.manifest.files[name].rows or 0
            first, last = np.searchsorted(ascending, [start, start + rows]).tolist()
            if first < last:
                pieces.append(self._part(name).take(pa.array(ascending[first:last] - start)))
            start += rows
        return pa.concat_tables(pieces).take(pa.array(np.argsort(order, kind="stable")))

    def _part(self, name: str) -> pa.Table:
        """Read a shard; the last one is kept."""
        if self._last is None or self._last[0] != name:
            table = pq.read_table(self.folder / name)
            self._last = name, table.drop_columns([c for c in ("row", FAILED) if c in table.column_names])
        return self._last[1]


def seconds_of_rows(manifest: Manifest) -> float:
    """Return the seconds that the rows of an encoding took to make, reused rows included."""
    runtime = manifest.runtime
    return float(runtime["seconds"] + runtime.get("reused_seconds", 0.0))


def _open_previous(folder: Path, semantic: dict[str, Any]) -> PreviousEncoding | None:
    """Open a previous encoding whose rows depend on the same parameters; None if there is none."""
    try:
        manifest = open_artefact(folder, "encoding")
    except RelabelError:
        return None
    if TEXTS not in manifest.files or _row_params(manifest.semantic) != _row_params(semantic):
        return None
    return PreviousEncoding(folder, manifest)


def _reuse_fact(previous: PreviousEncoding, table: pa.Table) -> dict[str, Any]:
    """Return the fact `reused`: the fingerprint of the previous encoding and the number of rows taken from it."""
    count = int((previous.positions(table["digest"]) >= 0).sum())
    return {"from": previous.manifest.fingerprint if count else None, "captions": count}


def _row_params(semantic: dict[str, Any]) -> Any:
    """Return the parameters that rows depend on, as JSON stores them."""
    return json.loads(json.dumps({name: value for name, value in semantic.items() if name not in _NO_EFFECT}))


def _texts_table(rows: range, texts: Iterable[str]) -> pa.Table:
    row = pa.array(np.arange(rows.start, rows.stop, dtype=np.int32))
    return pa.table([row, text_digests(texts)], schema=_SCHEMA)


def _join_rows(old: pa.Table, reused: Numbers, fresh: pa.Table, new: Numbers, rows: Numbers) -> pa.Table:
    """Join reused and newly encoded rows into one shard, in row order."""
    # Both parts ascend, so a stable sort of their positions interleaves them in row order.
    order = pa.array(np.argsort(np.concatenate([reused, new]), kind="stable"))
    names = [name for name in fresh.column_names if name not in ("row", FAILED)]
    columns: dict[str, Any] = {"row": rows.astype(np.int32)}
    for name in names:
        both = pa.chunked_array([*old[name].chunks, *fresh[name].chunks], old[name].type)
        columns[name] = both.take(order).combine_chunks()
    # Reused rows never failed.
    if FAILED in fresh.column_names:
        none = pa.chunked_array([pa.nulls(len(old), pa.string()), *fresh[FAILED].chunks])
        columns[FAILED] = none.take(order).combine_chunks()
    return pa.table(columns)
