"""Shards of an encoding, with one task per shard, and the rows that failed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.store.manifest import Manifest
from relabel.store.workdir import Step, Work, part_name, part_ranges, table_task

FAILED = "failed"
"""Column of failure reasons, null for encoded rows, in shards with failed rows; also the key of the manifest's fact."""

_SHOWN = 5  # failed rows that a manifest lists by id


@dataclass(frozen=True)
class Shards:
    """The shards of some rows of a corpus. `size`: rows per shard."""

    corpus: Corpus
    rows: range
    size: int

    @cached_property
    def files(self) -> dict[str, range]:
        """Rows of each shard, by file name."""
        ranges = part_ranges(self.rows, self.size)
        return {part_name(i, len(ranges)): part for i, part in enumerate(ranges)}

    def step(self, title: str, make: Callable[[range], pa.Table], plain: bool = False, last: bool = True) -> Step:
        """Return the step that makes the shards.

        `make`: returns the table of some rows, with one row per caption, the column `row` (int32) and, if captions
        failed, `FAILED` (see `mark_failed`). `plain`: as for `write_table`. `last`: as for `Step`.
        """
        files = self.files.items()
        return Step(
            title, "captions", [table_task(f, partial(make, part), len(part), plain) for f, part in files], last
        )

    def read_column(self, work: Work, name: str) -> Iterator[pa.ChunkedArray]:
        """Yield one column of each shard, in row order."""
        for file in self.files:
            yield pq.read_table(work.folder / file, columns=[name])[name]

    def record_failed(self, work: Work) -> None:
        """Add the failed rows to the facts, if there are any: their number, the first ids with reasons, and a hash."""
        rows: list[int] = []
        first: list[list[str]] = []
        for name, part in self.files.items():
            for position, reason in enumerate(column.to_pylist() if (column := _reasons(work.folder / name)) else ()):
                if reason is not None:
                    rows.append(part.start + position)
                    first += [[self.corpus.caption_ids[rows[-1]], reason]] if len(first) < _SHOWN else []
        if rows:
            digest = hashlib.sha256(np.array(rows, "<i4").tobytes()).hexdigest()
            work.facts[FAILED] = {"rows": len(rows), "first": first, "sha256": digest}


def mark_failed(table: pa.Table, reasons: Mapping[int, str]) -> pa.Table:
    """Add the column of failure reasons, by position, to a shard, which stays as it is without any."""
    if not reasons:
        return table
    return table.append_column(FAILED, pa.array([reasons.get(i) for i in range(len(table))], pa.string()))


def read_failed_rows(folder: Path, manifest: Manifest) -> NDArray[np.int32]:
    """Return the corpus rows of an encoding that failed, ascending: (F,) int32."""
    failed = [np.empty(0, np.int32)]
    for name in manifest.parts if FAILED in manifest.facts else ():
        reasons = _reasons(folder / name)
        if reasons is not None:
            row = pq.read_table(folder / name, columns=["row"])["row"].to_numpy()
            failed.append(row[reasons.is_valid().to_numpy()])
    return np.concatenate(failed)


def _reasons(shard: Path) -> pa.ChunkedArray | None:
    """Read the failure reasons of a shard; None if none of its rows failed."""
    # Only the footer is read for shards without the column.
    with pq.ParquetFile(shard) as file:
        return file.read(columns=[FAILED])[FAILED] if FAILED in file.schema_arrow.names else None
