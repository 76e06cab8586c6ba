"""The folder where an artefact grows, file by file; a file that is done is not made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.store.atomic import sha256_file, void, write_atomic, write_text
from relabel.store.manifest import FileEntry


@dataclass
class Work:
    """The folder where an artefact grows. Each file is committed by a small record beside it, written last."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)

    def done(self, name: str) -> bool:
        """Say whether a file is there, whole and as recorded; a damaged one is dropped."""
        record, path = self._record(name), self.folder / name
        if not record.exists():
            return False
        entry = FileEntry(**json.loads(record.read_text()))
        if path.exists() and path.stat().st_size == entry.bytes and sha256_file(path) == entry.sha256:
            return True
        record.unlink()
        return False

    def file(self, name: str, write: Callable[[Path], None], rows: int | None = None) -> None:
        """Have `write` make a file, unless it is already done."""
        if self.done(name):
            return
        path = self.folder / name
        write_atomic(path, write)
        entry = FileEntry(sha256_file(path), path.stat().st_size, rows)
        write_text(self._record(name), json.dumps(entry.__dict__))

    def table(self, name: str, make: Callable[[], pa.Table]) -> None:
        """Have `make` compute a table and write it as Parquet, unless it is already done."""
        if self.done(name):
            return
        table = make()
        self.file(name, lambda p: void(pq.write_table(table, p, compression="zstd")), rows=table.num_rows)

    def part(self, index: int, count: int, make: Callable[[], pa.Table]) -> None:
        """Write shard `index` of `count` (see `table`)."""
        self.table(part_name(index, count), make)

    def drop(self, name: str) -> None:
        """Take a file out again: one that was only needed on the way."""
        self._record(name).unlink(missing_ok=True)
        (self.folder / name).unlink(missing_ok=True)

    def entries(self) -> dict[str, FileEntry]:
        """Every committed file."""
        records = sorted((self.folder / ".done").glob("*.json"))
        return {r.name.removesuffix(".json"): FileEntry(**json.loads(r.read_text())) for r in records}

    def _record(self, name: str) -> Path:
        return self.folder / ".done" / f"{name}.json"


def part_name(index: int, count: int) -> str:
    """Name of a shard: `part-00000-of-00013.parquet`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def part_ranges(rows: range, rows_per_shard: int) -> list[range]:
    """Cut a range of rows into shards of fixed size; the last may be shorter."""
    return [range(a, min(a + rows_per_shard, rows.stop)) for a in range(rows.start, rows.stop, rows_per_shard)]
