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


def names(path: Path, ids: str = "image", size: int | None = None) -> list[tuple[str, str]]:
    return [(c.caption_id, c.image_id) for c in read_scan(path, "d", ids, size)]


def test_ids_of_images_one_per_image_or_per_caption(tmp_path: Path) -> None:
    expected = [("d:9#0", "d:9"), ("d:9#1", "d:9"), ("d:4#0", "d:4"), ("d:4#1", "d:4")]
    assert names(write(tmp_path, "test", 4, [9, 4])) == expected
    assert names(write(tmp_path, "test", 4, [9, 9, 4, 4])) == expected
    assert names(write(tmp_path, "test", 4, [9, 9, 4, 4]), size=2) == expected
    assert names(write(tmp_path, "test", 3, [9, 9, 4])) == expected[:3]


def test_ids_of_captions(tmp_path: Path) -> None:
    path = write(tmp_path, "test", 4, [30, 10, 20, 40])
    expected = [("d:30", "d:test-0"), ("d:10", "d:test-0"), ("d:20", "d:test-1"), ("d:40", "d:test-1")]
    assert names(path, "caption", 2) == expected


def test_ids_of_positions_on_request_only(tmp_path: Path) -> None:
    path = write(tmp_path, "test", 4)
    with pytest.raises(MissingError, match=r"test_ids\.txt"):
        names(path)
    with pytest.raises(UsageError, match="captions per image is not known"):
        names(path, "position")
    expected = [("d:test-0#0", "d:test-0"), ("d:test-0#1", "d:test-0"), ("d:test-1#0", "d:test-1")]
    assert names(path, "position", 2)[:3] == expected


@pytest.mark.parametrize(
    ("ids", "kind", "size", "message"),
    [
        ([1, 2, 3], "image", None, "test_ids.txt: expected 4 ids, one per caption, or one per image; found 3"),
        ([1, 1], "image", None, "test_ids.txt:1: image 1: expected 2 captions, found 4"),
        ([1, 1, 1, 2], "image", 2, "test_ids.txt:1: image 1: expected 2 captions, found 3"),
        ([1, 2, 3, 4], "image", None, "test_ids.txt: every caption has its own id"),
        ([1, 2, "", 4], "image", None, "test_ids.txt:3: empty id"),
        ([1, 2, 3, 4], "caption", 3, "test_caps.txt: 4 captions are not 3 per image"),
        (None, "position", 5, "test_caps.txt: 4 captions are not 5 per image"),
    ],
)
def test_mismatched_lines(tmp_path: Path, ids: list[object] | None, kind: str, size: int | None, message: str) -> None:
    path = write(tmp_path, "test", 4, ids)
    with pytest.raises(CheckError, match=re.escape(message)):
        names(path, kind, size)


def test_finds_one_file_per_split(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no \*_caps\.txt"):
        scan_files(tmp_path)
    paths = [write(tmp_path, split, 1) for split in ("dev", "testall", "train")]
    write(tmp_path, "test", 1)
    assert scan_files(tmp_path) == paths
    write(tmp_path, "val", 1)
    with pytest.raises(UsageError, match=r"val_caps\.txt and dev_caps\.txt belong to one split"):
        scan_files(tmp_path)
