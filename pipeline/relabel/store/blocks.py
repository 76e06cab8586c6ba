"""Blocks: saved pieces of a file that takes longer to make than a user should lose by an interrupt."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.progress import Advance
from relabel.store.tasks import Task, count_saved
from relabel.store.workdir import Work

BLOCK_SECONDS = 4.0
"""Time that one block takes, about."""
_PREFIX = "block-"
_NUMBER = "block_row"  # column of the row numbers, which identify the rows of a saved block

Numbers = NDArray[np.int64]


class Blocks:
    """Rows of one file, made in blocks of about `BLOCK_SECONDS`. A block is saved until the file is complete.

    The table that `make` returns does not depend on the division into blocks if each row depends on itself alone, or on
    the rows of its step.

    Parameters
    ----------
    work : Work
    file : str
        Name of the file that the rows become.
    first : int
        Rows of the first block, which shows the speed. A multiple of `step`.
    step : int
        Blocks begin at multiples of this number of rows.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from relabel.store.blocks import Blocks
    >>> from relabel.store.workdir import Work
    >>> work = Work(Path("work"))
    >>> blocks = Blocks(work, "squares.parquet", first=2)
    >>> blocks.make(np.arange(5), lambda rows: pa.table({"square": rows**2}), advance=lambda done: None).to_pydict()
    {'square': [0, 1, 4, 9, 16]}
    >>> list(work.entries())
    ['block-squares-0000000000.parquet']
    >>> blocks.drop()
    >>> list(work.entries())
    []
    """

    def __init__(self, work: Work, file: str, first: int = 1024, step: int = 1) -> None:
        self.work, self.file, self.first, self.step = work, file, first, step
        self._names: list[str] = []

    def make(
        self, rows: Numbers, make: Callable[[Numbers], pa.Table], advance: Advance, more: bool = False
    ) -> pa.Table:
        """Make the table of some rows; blocks that an interrupted run has saved are read.

        Parameters
        ----------
        rows : (n,) int64
            Numbers of the rows, ascending.
        make : callable
            Returns the table of some of these rows, one row each.
        advance : callable
            Receives the number of rows that are read rather than made.
        more : bool
            True if further rows of the file follow, so that the last block is saved as well.
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
            # An earlier run made other rows, for example because it reused others.
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
) -> None:
    """Write the file of a task in saved blocks, which are removed when the file is complete.

    Parameters
    ----------
    work : Work
    make : callable
        Returns the table of a range of the task's rows, and reports them as done.
    task : Task
        Its size is the number of rows.
    advance : callable
    first, step : int
        As for `Blocks`.
    """
    blocks = Blocks(work, task.file, first, step)

    def table(numbers: Numbers) -> pa.Table:
        return make(range(int(numbers[0]), int(numbers[-1]) + 1), advance)

    work.table(task.file, lambda: blocks.make(np.arange(task.size), table, advance))
    blocks.drop()


def exclude_blocks(work: Work) -> None:
    """Leave the blocks of an interrupted run out of the finished artefact."""
    work.excluded.update(name for name in work.entries() if name.startswith(_PREFIX))
