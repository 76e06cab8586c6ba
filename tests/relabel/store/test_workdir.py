"""Contract: a file of a work folder counts only with its record, is written once, and is rewritten if it is damaged.
Shards of another count are rejected, and files that no manifest names are found.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.core.errors import CheckError
from relabel.store.workdir import DONE, Work, foreign_files, part_name, part_ranges, unexpected_files


def never(path: Path) -> None:
    raise AssertionError(f"{path.name} is made again")


def test_a_file_is_written_once(tmp_path: Path) -> None:
    Work(tmp_path).file("a.txt", lambda path: path.write_text("a dog"), rows=1)
    work = Work(tmp_path)
    assert work.done("a.txt")
    work.file("a.txt", never)
    assert work.entries()["a.txt"].rows == 1


@pytest.mark.parametrize("damage", ["longer", "same size", "missing", "no record", "torn record"])
def test_a_damaged_file_is_rewritten(tmp_path: Path, damage: str) -> None:
    Work(tmp_path).file("a.txt", lambda path: path.write_text("a dog"))
    path, record = tmp_path / "a.txt", tmp_path / DONE / "a.txt.json"
    if damage == "missing":
        path.unlink()
    elif damage == "no record":
        record.unlink()
    elif damage == "torn record":
        record.write_text(record.read_text()[:20])
    else:
        path.write_text("a dogs" if damage == "longer" else "a cat")
    work = Work(tmp_path)
    assert not work.done("a.txt")
    work.file("a.txt", lambda path: path.write_text("a dog"))
    assert path.read_text() == "a dog"
    assert Work(tmp_path).done("a.txt")


def test_an_error_commits_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise ValueError("half")

    work = Work(tmp_path)
    with pytest.raises(ValueError, match="half"):
        work.file("a.txt", fail)
    assert not work.done("a.txt")
    assert work.entries() == {}


def test_shards_of_another_count_are_rejected(tmp_path: Path) -> None:
    Work(tmp_path).part(0, 2, lambda: pa.table({"x": [1]}))
    with pytest.raises(CheckError, match="expected shards like part-00000-of-00003"):
        Work(tmp_path).part(0, 3, lambda: pa.table({"x": [1]}))
    assert pq.read_table(tmp_path / part_name(0, 2))["x"].to_pylist() == [1]


def test_a_subfolder_is_recorded_by_the_outer_work(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.subfolder("fold-0").file("a.txt", lambda path: path.write_text("a dog"))
    assert list(work.entries()) == ["fold-0/a.txt"]
    assert Work(tmp_path).subfolder("fold-0").done("a.txt")
    work.drop("fold-0/a.txt")
    assert not Work(tmp_path).subfolder("fold-0").done("a.txt")


def test_files_that_no_manifest_names_are_found(tmp_path: Path) -> None:
    for name in (
        "a.txt",
        "sub/b.txt",
        "sub/extra.txt",
        "other/c.txt",
        "manifest.json",
        ".gitignore",
        ".x-01234567-1.part",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    named = ["a.txt", "sub/b.txt"]
    unexpected = [path.relative_to(tmp_path).as_posix() for path in unexpected_files(tmp_path, named)]
    assert unexpected == [".gitignore", ".x-01234567-1.part", "other", "sub/extra.txt"]
    assert [path.name for path in foreign_files(tmp_path, named)] == ["other", "extra.txt"]


@pytest.mark.parametrize(("rows", "each"), [(range(0), 3), (range(5, 6), 3), (range(4, 10), 3), (range(0, 10), 3)])
def test_shards_cover_the_rows(rows: range, each: int) -> None:
    parts = part_ranges(rows, each)
    assert [row for part in parts for row in part] == list(rows)
    assert all(len(part) == each for part in parts[:-1])
