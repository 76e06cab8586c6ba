"""Shards of an encoding, with one task per shard, and failed rows."""

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
"""Column of failure reasons in shards with failed rows, null for encoded rows; also a key of the metadata."""

_SAMPLE = 10_000  # maximum number of captions in a sample
_SHOWN = 5  # maximum number of failed rows in a manifest


@dataclass(frozen=True)
class Shards:
    """Shards of a range of corpus rows. `size`: rows per shard."""

    corpus: Corpus
    rows: range
    size: int

    @cached_property
    def files(self) -> dict[str, range]:
        """Rows of each shard by file name."""
        ranges = part_ranges(self.rows, self.size)
        return {part_name(i, len(ranges)): part for i, part in enumerate(ranges)}

    def step(self, title: str, make: Callable[[range], pa.Table], plain: bool = False, last: bool = True) -> Step:
        """Return the step that writes the shards.

        `make`: returns the table of a range of rows, with one row per caption, a column `row` (int32) and, if captions
        failed, `FAILED` (see `mark_failed`). `plain`: as for `write_table`. `last`: as for `Step`.
        """
        files = self.files.items()
        return Step(
            title, "captions", [table_task(f, partial(make, part), len(part), plain) for f, part in files], last
        )

    def sample(self) -> list[str]:
        """Return the texts of all captions, or of evenly spaced ones if there are many."""
        places = np.linspace(self.rows.start, self.rows.stop - 1, min(len(self.rows), _SAMPLE)).astype(np.int64)
        return self.corpus.table["text"].take(pa.array(places)).to_pylist()  # type: ignore[no-any-return]

    def read_column(self, work: Work, name: str) -> Iterator[pa.ChunkedArray]:
        """Yield a column of each shard in row order."""
        for file in self.files:
            yield pq.read_table(work.folder / file, columns=[name])[name]

    def record_failed(self, work: Work) -> None:
        """Add failed rows, if any, to the metadata: their number, the first ids with reasons, and a hash."""
        failed = [entry for name in self.files for entry in _failed_rows(work.folder / name)]
        if failed:
            digest = hashlib.sha256(np.array([row for row, _ in failed], "<i4").tobytes()).hexdigest()
            first = [[self.corpus.caption_ids[row], reason] for row, reason in failed[:_SHOWN]]
            work.metadata[FAILED] = {"rows": len(failed), "first": first, "sha256": digest}


def mark_failed(table: pa.Table, reasons: Mapping[int, str]) -> pa.Table:
    """Add a column of failure reasons to a shard, if there are any. `reasons`: by position in the shard."""
    if not reasons:
        return table
    return table.append_column(FAILED, pa.array([reasons.get(i) for i in range(len(table))], pa.string()))


def read_failed_rows(folder: Path, manifest: Manifest) -> NDArray[np.int32]:
    """Return the ascending corpus rows that could not be encoded: (F,) int32."""
    names = manifest.parts if FAILED in manifest.metadata else ()
    return np.array([row for name in names for row, _ in _failed_rows(folder / name)], np.int32)


def _failed_rows(shard: Path) -> list[tuple[int, str]]:
    """Return the failed rows of a shard with their reasons."""
    with pq.ParquetFile(shard) as file:
        # For shards without the column, only the footer is read.
        if FAILED not in file.schema_arrow.names:
            return []
        table = file.read(columns=["row", FAILED])
    rows = table.filter(table[FAILED].is_valid())
    return list(zip(rows["row"].to_pylist(), rows[FAILED].to_pylist(), strict=True))
