"""An encoding cut into tasks: one shard, one task. What a row's failure leaves behind, and facts read from shards."""

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

from relabel.core.progress import Advance
from relabel.corpus import Corpus
from relabel.store.manifest import Manifest
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work, part_name, part_ranges

FAILED = "failed"
"""Column of reasons, null where a row is fine: only in shards where a row failed. And what a manifest's facts say."""

_SHOWN = 5  # failed rows that a manifest names


class ShardTasks(Tasks):
    """Work on one encoding.

    A shard that ends with failed rows is whole; it is made again by the next run, and so is all that came of it.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Corpus rows to encode.
    rows_per_shard : int

    Attributes
    ----------
    parts : dict of str to range
        The rows of each shard, by file name.
    derived_files : tuple of str
        Files made from the shards.
    plain : bool
        Whether shards are written uncompressed (see Work.table).
    """

    derived_files: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[bool] = False

    def __init__(self, corpus: Corpus, rows: range, rows_per_shard: int) -> None:
        self.corpus, self.rows = corpus, rows
        ranges = part_ranges(rows, rows_per_shard)
        self.parts = {part_name(i, len(ranges)): part for i, part in enumerate(ranges)}

    @property
    @abstractmethod
    def title(self) -> str:
        """What a bar calls the shards."""

    @abstractmethod
    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make one shard; `advance` may be told how many more captions are done; the rest count once it is written.

        With a column `FAILED` (string) if the source fails a row and not the run: see `mark_failed`.
        """

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """List groups whose files the shards need."""
        yield from ()

    def after_shards(self, work: Work) -> Iterator[TaskGroup]:
        """List groups that need the shards."""
        yield from ()

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Make a task of `before_shards` or `after_shards`; `advance` as for `make_shard`."""
        raise NotImplementedError(task.file)

    def start(self, work: Work) -> None:
        """Drop the shards of an earlier run that hold failed rows, and what was made from them."""
        again = [name for name in self.parts if work.done(name) and _reasons(work.folder / name) is not None]
        for name in (*again, *(self.derived_files if again else ())):
            work.drop(name)

    @override
    def groups(self, work: Work) -> Iterator[TaskGroup]:
        yield from self.before_shards(work)
        yield TaskGroup(self.title, "captions", [Task(name, len(rows)) for name, rows in self.parts.items()])
        yield from self.after_shards(work)

    @override
    def make(self, work: Work, task: Task, advance: Advance) -> None:
        left = task.size

        def tell(more: int) -> None:
            nonlocal left
            left -= more
            advance(more)

        if task.file in self.parts:
            work.table(task.file, lambda: self.make_shard(work, self.parts[task.file], tell), self.plain)
        else:
            self.make_other(work, task, tell)
        if left:
            advance(left)

    def finish(self, work: Work) -> None:
        """Note the failed rows, if there are any."""
        reasons = {name: _reasons(work.folder / name) for name in self.parts}
        if any(column is not None for column in reasons.values()):
            work.facts[FAILED] = _failures(self.corpus, self.parts, reasons)

    def read_column(self, work: Work, name: str) -> Iterator[pa.ChunkedArray]:
        """Read one column of all shards, one after another."""
        for part in self.parts:
            yield pq.read_table(work.folder / part, columns=[name])[name]


class NoTasks(Tasks):
    """An encoding without files."""

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """None."""
        yield from ()

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """There is no task to make."""
        raise NotImplementedError(task.file)


def mark_failed(table: pa.Table, reasons: Mapping[int, str]) -> pa.Table:
    """Add the reasons of failed rows to a shard; a shard without any stays as it is.

    Parameters
    ----------
    table : pyarrow.Table
        n rows.
    reasons : mapping of int to str
        By place in the shard, 0..n-1.
    """
    if not reasons:
        return table
    return table.append_column(FAILED, pa.array([reasons.get(i) for i in range(len(table))], pa.string()))


def read_failed_rows(folder: Path, manifest: Manifest) -> NDArray[np.int32]:
    """Read the corpus rows that failed, ascending, (F,) int32."""
    found = [np.empty(0, np.int32)]
    for name in manifest.parts if FAILED in manifest.facts else ():
        reasons = _reasons(folder / name)
        if reasons is not None:
            row = pq.read_table(folder / name, columns=["row"])["row"].to_numpy()
            found.append(row[reasons.is_valid().to_numpy()])
    return np.concatenate(found)


def _reasons(shard: Path) -> pa.ChunkedArray | None:
    with pq.ParquetFile(shard) as file:
        return file.read(columns=[FAILED])[FAILED] if FAILED in file.schema_arrow.names else None


def _failures(
    corpus: Corpus, parts: Mapping[str, range], reasons: Mapping[str, pa.ChunkedArray | None]
) -> dict[str, Any]:
    """What a manifest says: how many rows, the first of them by id with their reasons, and sha256 of all rows."""
    rows: list[int] = []
    first: list[list[str]] = []
    for name, column in reasons.items():
        for place, reason in enumerate(column.to_pylist() if column is not None else ()):
            if reason is not None:
                rows.append(parts[name].start + place)
                first += [[corpus.caption_ids[rows[-1]], reason]] if len(first) < _SHOWN else []
    return {"rows": len(rows), "first": first, "sha256": hashlib.sha256(np.array(rows, "<i4").tobytes()).hexdigest()}
