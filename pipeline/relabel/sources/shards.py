"""Encoding of a corpus shard by shard, with one task per shard, and the rows that failed."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.runtime import Advance
from relabel.corpus import Corpus
from relabel.store.manifest import Manifest
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work, part_name, part_ranges

FAILED = "failed"
"""Column of failure reasons, null for encoded rows, in shards with failed rows; also the key of the manifest's fact."""

_SHOWN = 5  # failed rows that a manifest lists by id


class ShardTasks(Tasks):
    """Work that encodes captions shard by shard.

    A subclass implements `title` and `make_shard`. If it needs other files before or after the shards, it also
    implements `before_shards` or `after_shards`, and `make_other`.

    `rows`: corpus rows to encode.

    `parts`: rows of each shard, by file name.
    `plain`: whether shards are written uncompressed (see `Work.table`).
    """

    plain: ClassVar[bool] = False

    def __init__(self, corpus: Corpus, rows: range, rows_per_shard: int) -> None:
        self.corpus, self.rows = corpus, rows
        ranges = part_ranges(rows, rows_per_shard)
        self.parts = {part_name(i, len(ranges)): part for i, part in enumerate(ranges)}

    @property
    @abstractmethod
    def title(self) -> str:
        """Title of the progress bar of the shards."""

    @abstractmethod
    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Encode the rows of one shard.

        `work`: work folder, with the files of earlier task groups. `rows`: corpus rows of the shard. `advance`: may
        receive the number of further captions that are done; the rest count once the shard is written. Returns
        pyarrow.Table: one row per caption, with the column `row` (int32) and, if captions failed, `FAILED` (see
        `mark_failed`).
        """

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Return the task groups whose files the shards need."""
        yield from ()

    def after_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Return the task groups that need the shards."""
        yield from ()

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the file of a task of `before_shards` or `after_shards`; `advance` as in `make_shard`."""
        raise NotImplementedError(task.file)

    @override
    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Return the task groups before the shards, the shards, and the task groups after them."""
        yield from self.before_shards(work)
        yield TaskGroup(self.title, "captions", [Task(name, len(rows)) for name, rows in self.parts.items()])
        yield from self.after_shards(work)

    @override
    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the file of one task, and count all of its captions as done."""
        remaining = task.size

        def count(done: int) -> None:
            nonlocal remaining
            remaining -= done
            advance(done)

        if task.file in self.parts:
            work.table(task.file, lambda: self.make_shard(work, self.parts[task.file], count), self.plain)
        else:
            self.make_other(work, task, count)
        # Captions that `make_shard` did not report itself.
        if remaining:
            advance(remaining)

    def finish(self, work: Work) -> None:
        """Record the failed rows in the facts of the manifest, if there are any."""
        reasons = {name: _reasons(work.folder / name) for name in self.parts}
        if any(column is not None for column in reasons.values()):
            work.facts[FAILED] = _failures(self.corpus, self.parts, reasons)

    def read_column(self, work: Work, name: str) -> Iterator[pa.ChunkedArray]:
        """Yield one column of each shard, in row order."""
        for part in self.parts:
            yield pq.read_table(work.folder / part, columns=[name])[name]


def mark_failed(table: pa.Table, reasons: Mapping[int, str]) -> pa.Table:
    """Add the column of failure reasons to a shard. A shard without failed rows is returned unchanged.

    `table`: n rows. `reasons`: reason by position in the shard, 0..n-1.
    """
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


def _failures(
    corpus: Corpus, parts: Mapping[str, range], reasons: Mapping[str, pa.ChunkedArray | None]
) -> dict[str, Any]:
    """Summarise the failed rows: their number, the first ids with their reasons, and the sha256 of all row numbers."""
    rows: list[int] = []
    first: list[list[str]] = []
    for name, column in reasons.items():
        for position, reason in enumerate(column.to_pylist() if column is not None else ()):
            if reason is not None:
                rows.append(parts[name].start + position)
                first += [[corpus.caption_ids[rows[-1]], reason]] if len(first) < _SHOWN else []
    return {"rows": len(rows), "first": first, "sha256": hashlib.sha256(np.array(rows, "<i4").tobytes()).hexdigest()}
