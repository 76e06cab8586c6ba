"""Contract: the rows of a file are made in saved blocks; a later run reads them and makes the rest, with the table of a
run that was not interrupted. Blocks of other rows are made again, and no block stays in the artefact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from relabel.store.tasks import Blocks, Numbers
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


@pytest.mark.parametrize("seconds", [0.0, 1e9])
@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("stop", [1, 3])
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


def test_blocks_of_other_rows_are_made_again(work: Work) -> None:
    with pytest.raises(KeyboardInterrupt):
        Blocks(work, FILE, first=4).make(np.arange(40), Squares(stop=1), advance)
    rows = np.array([0, 1, 3, 4, 5, 6])
    table = Blocks(work, FILE, first=4).make(rows, Squares(), advance)
    assert table["square"].to_pylist() == (rows**2).tolist()
