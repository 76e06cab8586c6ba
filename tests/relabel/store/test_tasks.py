"""Contract: the rows of a file are made in saved blocks; a later run reads them and makes the rest, with the table of a
run that was not interrupted. Blocks of other rows are made again, and no block stays in the artefact."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from relabel.core.runtime import SILENT, Advance
from relabel.store import tasks
from relabel.store.tasks import Blocks, Numbers, Task, TaskGroup, exclude_blocks, make_group
from relabel.store.workdir import Work

FILE = "part-00000-of-00001.parquet"
ROWS = np.arange(40, 67)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    (tmp_path / "work/.done").mkdir(parents=True)
    return Work(tmp_path / "work")


class Squares:
    """Rows with their squares; the third call is interrupted."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop, self.calls = stop, list[list[int]]()

    def __call__(self, rows: Numbers) -> pa.Table:
        if len(self.calls) == self.stop:
            raise KeyboardInterrupt
        self.calls.append(rows.tolist())
        table = pa.table({"row": rows.astype(np.int32), "square": rows**2})
        # As the column of failure reasons: most blocks lack it.
        return table.append_column("odd", pa.array(["odd"] * len(rows))) if 50 in rows else table


def advance(_: int) -> None:
    """Ignore progress."""


@pytest.mark.parametrize("seconds", [0.0, 1e-3, 1e9])
@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_an_interrupted_file_goes_on_with_its_blocks(
    work: Work, monkeypatch: pytest.MonkeyPatch, seconds: float, step: int, stop: int
) -> None:
    monkeypatch.setattr("relabel.store.tasks.BLOCK_SECONDS", seconds)
    complete = Squares()
    expected = complete(ROWS)
    before, after = Squares(stop), Squares()
    try:
        Blocks(work, FILE, first=4, step=step).make(ROWS, before, advance)
    except KeyboardInterrupt:
        assert len(before.calls) == stop
    blocks, done = Blocks(work, FILE, first=4, step=step), list[int]()
    table = blocks.make(ROWS, after, done.append)
    assert table.select(["row", "square"]).equals(expected.select(["row", "square"]))
    rows_made = [row for call in (*before.calls, *after.calls) for row in call]
    # The last block of a complete file is not saved, and only it may be made twice.
    assert sorted(set(rows_made)) == ROWS.tolist()
    assert sum(done) + sum(map(len, after.calls)) == len(ROWS)
    if len(before.calls) == stop and max(map(max, before.calls)) < ROWS[-1]:
        assert len(rows_made) == len(ROWS)
    assert all((call[0] - ROWS[0]) % step == 0 for call in (*before.calls, *after.calls))
    blocks.drop()
    assert not list(work.entries())


@pytest.mark.parametrize("seconds_per_row", [1e-6, 1e-4, 1e-3, 4e-3])
def test_an_interrupt_loses_at_most_ten_seconds(
    work: Work, monkeypatch: pytest.MonkeyPatch, seconds_per_row: float
) -> None:
    """Simulate rows whose cost doubles and halves. A block is the most that an interrupt loses."""
    clock, blocks = 0.0, list[float]()
    monkeypatch.setattr("relabel.store.tasks.time", SimpleNamespace(monotonic=lambda: clock))

    def make(rows: Numbers) -> pa.Table:
        nonlocal clock
        blocks.append(float(np.where(rows // 5000 % 2, 2, 1).sum()) * seconds_per_row)
        clock += blocks[-1]
        return pa.table({"row": rows})

    Blocks(work, FILE).make(np.arange(50_000), make, advance)
    assert sum(blocks) == pytest.approx(75_000 * seconds_per_row)
    assert max(blocks) <= 10
    # Blocks far below the limit would be many files.
    assert len(blocks) <= 8 + sum(blocks) / 2


def test_blocks_of_other_rows_are_made_again(work: Work) -> None:
    with pytest.raises(KeyboardInterrupt):
        Blocks(work, FILE, first=4).make(np.arange(40), Squares(stop=1), advance)
    rows = np.array([0, 1, 3, 4, 5, 6])
    table = Blocks(work, FILE, first=4).make(rows, Squares(), advance)
    assert table["square"].to_pylist() == (rows**2).tolist()


def test_a_damaged_block_is_made_again(work: Work) -> None:
    with pytest.raises(KeyboardInterrupt):
        Blocks(work, FILE, first=4).make(ROWS, Squares(stop=1), advance)
    (path,) = work.folder.glob("block-*")
    path.write_bytes(path.read_bytes()[:-1])
    again = Squares()
    Blocks(work, FILE, first=4).make(ROWS, again, advance)
    assert again.calls[0] == ROWS[:4].tolist()


def test_parts_of_one_file_are_saved_to_their_end(work: Work) -> None:
    blocks = Blocks(work, FILE, first=100)
    blocks.make(ROWS[:9], Squares(), advance, more=True)
    again = Squares()
    Blocks(work, FILE, first=100).make(ROWS[:9], again, advance, more=True)
    assert again.calls == []


def test_the_saved_amount_counts_blocks(work: Work) -> None:
    described = list[str]()

    def squares(rows: Numbers) -> pa.Table:
        assert tasks.saved is not None
        described.append(tasks.saved.describe())
        return Squares()(rows)

    def make(task: Task, advance: Advance) -> None:
        work.table(task.file, lambda: Blocks(work, task.file, first=20).make(ROWS, squares, advance))

    make_group(TaskGroup("squares", "rows", [Task(FILE, len(ROWS))]), work, SILENT, make)
    assert described == ["0 of 27 rows (squares)", "20 of 27 rows (squares)"]
    assert tasks.saved is None
    exclude_blocks(work)
    assert work.excluded == {"block-part-00000-of-00001-0000000040.parquet"}
