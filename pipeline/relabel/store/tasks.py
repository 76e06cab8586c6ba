"""The work on an artefact, cut into tasks, and blocks: saved pieces of a task that takes long.

A task makes one file, can run in any worker, and waits for no other task. Tasks come in groups. A group begins when the
group before it is complete. A killed run resumes with the tasks whose files are missing, and with the blocks of theirs
that are missing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.runtime import Advance, Progress
from relabel.store.workdir import Work


@dataclass(frozen=True)
class Task:
    """One file of an artefact's work.

    `file`: name of the file in the work folder. The task is done when the file is (see `Work.done`).
    `size`: amount of work, in the unit of its group.
    """

    file: str
    size: int


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that do not depend on each other.

    `title`, `measure`: title of the progress bar, and the unit of the sizes ("captions").
    """

    title: str
    measure: str
    tasks: Sequence[Task]


class Tasks(ABC):
    """The work on one artefact.

    Each worker has an instance of its own, made from the same parameters. Instances share only the work folder.
    """

    def start(self, work: Work) -> None:  # noqa: B027
        """Write files that all tasks need, such as a vocabulary. Called in the main process before any task."""

    @abstractmethod
    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Yield the groups in order. Each one is requested when the group before it is complete."""

    @abstractmethod
    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Write one task's file through `work`, in any process.

        The bytes depend only on the parameters, the inputs and the files of earlier groups. `advance` is called with
        the amount of work done. The amounts add up to ``task.size``.
        """

    def finish(self, work: Work) -> None:  # noqa: B027
        """Set the facts and exclude auxiliary files. Called in the main process after all tasks."""


@dataclass
class SavedWork:
    """Amount of a group's work that is on disk, so that the message of an interrupt can state it.

    `complete`: work of the finished tasks.
    `partial`: work of the current task that has been saved.
    """

    group: TaskGroup
    complete: int = 0
    partial: int = 0

    def describe(self) -> str:
        """Return the amount in words."""
        total = sum(task.size for task in self.group.tasks)
        return f"{self.complete + self.partial:,} of {total:,} {self.group.measure} ({self.group.title})"


saved: SavedWork | None = None
"""Saved work of the group that this process works on."""


def count_saved(amount: int) -> None:
    """Count work of the current task that was saved before the task is complete."""
    if saved is not None:
        saved.partial += amount


def make_group(group: TaskGroup, work: Work, progress: Progress, make: Callable[[Task, Advance], None]) -> None:
    """Run the tasks of a group that are not done, in this process, with a progress bar.

    `make`: writes the file of a task, and reports the amounts of work done.
    """
    global saved
    saved = SavedWork(group)
    try:
        with progress.bar(group.title, sum(task.size for task in group.tasks), group.measure) as bar:
            for task in group.tasks:
                # Work of an earlier run counts in full, so that the bar always ends at its total.
                if work.done(task.file):
                    bar.advance(task.size)
                else:
                    make(task, bar.advance)
                saved.complete, saved.partial = saved.complete + task.size, 0
    finally:
        saved = None


def make_all(tasks: Tasks, work: Work, progress: Progress) -> None:
    """Run all tasks that are not done, in this process."""
    tasks.start(work)
    for group in tasks.groups(work):
        make_group(group, work, progress, partial(tasks.make, work))
    tasks.finish(work)


BLOCK_SECONDS = 4.0
"""Time that one block takes, about."""
_PREFIX = "block-"
_NUMBER = "block_row"  # column of the row numbers, which identify the rows of a saved block

Numbers = NDArray[np.int64]


class Blocks:
    """Rows of one file, made in blocks of about `BLOCK_SECONDS`. A block is saved until the file is complete.

    The table that `make` returns does not depend on the division into blocks if each row depends on itself alone, or on
    the rows of its step.

    `file`: name of the file that the rows become. `first`: rows of the first block, which shows the speed. A multiple
    of `step`. `step`: blocks begin at multiples of this number of rows.
    """

    def __init__(self, work: Work, file: str, first: int = 1024, step: int = 1) -> None:
        self.work, self.file, self.first, self.step = work, file, first, step
        self._names: list[str] = []

    def make(
        self, rows: Numbers, make: Callable[[Numbers], pa.Table], advance: Advance, more: bool = False
    ) -> pa.Table:
        """Make the table of some rows; blocks that an interrupted run has saved are read.

        `rows`: (n,) int64; numbers of the rows, ascending. `make`: returns the table of some of these rows, one row
        each. `advance`: receives the number of rows that are read rather than made. `more`: True if further rows of the
        file follow, so that the last block is saved as well.
        """
        tables, start, size = list[pa.Table](), 0, self.first
        while start < len(rows) or not tables:
            table = self._read(rows[start:])
            if table is not None:
                advance(len(table))
            else:
                began = time.monotonic()
                table = make(rows[start : start + size])
                seconds = time.monotonic() - began
                # The last block becomes part of the file immediately.
                if more or start + size < len(rows):
                    self._save(rows[start : start + size], table)
                scaled = size * BLOCK_SECONDS / max(seconds, 1e-3)
                size = int(np.clip(scaled, self.first // 4, 4 * size)) // self.step * self.step or self.step
            tables.append(table)
            start += len(table)
        # A block may lack a column of others, such as that of failed rows.
        return pa.concat_tables(tables, promote_options="default").combine_chunks()

    def drop(self) -> None:
        """Remove the blocks of a file that is complete."""
        while self._names:
            self.work.drop(self._names.pop())

    def _read(self, rows: Numbers) -> pa.Table | None:
        """Read the block that begins with the first row; None if there is none, or it holds other rows."""
        name = self._name(rows)
        if not len(rows) or not self.work.done(name):
            return None
        table = pq.read_table(self.work.folder / name)
        if not np.array_equal(table[_NUMBER].to_numpy(), rows[: len(table)]):
            self.work.drop(name)
            return None
        self._names.append(name)
        count_saved(len(table))
        return table.drop_columns([_NUMBER])

    def _save(self, rows: Numbers, table: pa.Table) -> None:
        name = self._name(rows)
        numbered = table.append_column(_NUMBER, pa.array(rows))
        self.work.table(name, lambda: numbered, plain=True)
        self._names.append(name)
        count_saved(len(table))

    def _name(self, rows: Numbers) -> str:
        first = int(rows[0]) if len(rows) else 0
        return f"{_PREFIX}{self.file.removesuffix('.parquet')}-{first:010d}.parquet"


def write_in_blocks(
    work: Work,
    make: Callable[[range, Advance], pa.Table],
    task: Task,
    advance: Advance,
    first: int = 1024,
    step: int = 1,
    plain: bool = False,
) -> None:
    """Write the file of a task in saved blocks, which are removed when the file is complete.

    `make`: returns the table of a range of the task's rows, and reports them as done. `task`: its size is the number of
    rows. `first`, `step`: as for `Blocks`. `plain`: as for `Work.table`.
    """
    blocks = Blocks(work, task.file, first, step)

    def table(numbers: Numbers) -> pa.Table:
        return make(range(int(numbers[0]), int(numbers[-1]) + 1), advance)

    work.table(task.file, lambda: blocks.make(np.arange(task.size), table, advance), plain)
    blocks.drop()


def exclude_blocks(work: Work) -> None:
    """Leave the blocks of an interrupted run out of the finished artefact."""
    work.excluded.update(name for name in work.entries() if name.startswith(_PREFIX))
