"""Contract: SCAN's files become captions with the ids that their parameter names; ids are never derived from
positions by default. Files with mismatched numbers of lines are refused.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.corpus.readers.scan_layout import read_scan, scan_files


def write(folder: Path, split: str, captions: int, ids: list[object] | None = None) -> Path:
    path = folder / f"{split}_caps.txt"
    path.write_text("".join(f"text {n} \n" for n in range(captions)))
    if ids is not None:
        (folder / f"{split}_ids.txt").write_text("".join(f"{i}\n" for i in ids))
    return path


@pytest.mark.parametrize(
    ("ids", "kind", "size", "expected"),
    [
        ([9, 4], "image", None, ["9#0 9", "9#1 9", "4#0 4", "4#1 4"]),  # one per image
        ([9, 9, 4, 4], "image", None, ["9#0 9", "9#1 9", "4#0 4", "4#1 4"]),  # one per caption
        ([9, 9, 4, 4], "image", 2, ["9#0 9", "9#1 9", "4#0 4", "4#1 4"]),
        ([9, 9, 9, 4], "image", None, ["9#0 9", "9#1 9", "9#2 9", "4#0 4"]),
        ([30, 10, 20, 40], "caption", 2, ["30 test-0", "10 test-0", "20 test-1", "40 test-1"]),
        (None, "position", 2, ["test-0#0 test-0", "test-0#1 test-0", "test-1#0 test-1", "test-1#1 test-1"]),
    ],
)
def test_ids_are_those_that_the_parameter_names(
    tmp_path: Path, ids: list[object] | None, kind: str, size: int | None, expected: list[str]
) -> None:
    captions = [(c["caption"], c["image"]) for _, c in read_scan(write(tmp_path, "test", 4, ids), kind, size)]
    assert captions == [tuple(names.split()) for names in expected]


@pytest.mark.parametrize(
    ("ids", "kind", "size", "message"),
    [
        (None, "image", None, "test_ids.txt"),
        (None, "position", None, "captions per image is unknown"),
        ([1, 2, 3], "image", None, "test_ids.txt: expected 4 ids, one per caption, or one per image; found 3"),
        ([1, 1], "image", None, "test_ids.txt:1: image 1: expected 2 captions, found 4"),
        ([1, 1, 1, 2], "image", 2, "test_ids.txt:1: image 1: expected 2 captions, found 3"),
        ([1, 2, 3, 4], "image", None, "test_ids.txt: every id appears once"),
        ([1, 2, "", 4], "image", None, "test_ids.txt:3: empty id"),
        ([1, 2, 3, 4], "caption", 3, "test_caps.txt: 4 captions are not a multiple of 3 per image"),
        (None, "position", 5, "test_caps.txt: 4 captions are not a multiple of 5 per image"),
    ],
)
def test_missing_or_mismatched_ids_are_refused(
    tmp_path: Path, ids: list[object] | None, kind: str, size: int | None, message: str
) -> None:
    error = UsageError if "unknown" in message else CheckError if ids or size else MissingError
    with pytest.raises(error, match=re.escape(message)):
        list(read_scan(write(tmp_path, "test", 4, ids), kind, size))


def test_finds_one_file_per_split(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no \*_caps\.txt"):
        scan_files(tmp_path)
    paths = [write(tmp_path, split, 1) for split in ("dev", "testall", "train")]
    write(tmp_path, "test", 1)
    assert scan_files(tmp_path) == paths
    write(tmp_path, "val", 1)
    with pytest.raises(UsageError, match=r"val_caps\.txt and dev_caps\.txt belong to one split"):
        scan_files(tmp_path)
