"""Contract: a file is written completely or not at all; a failed write keeps the old file and leaves no temporary
file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.store.files import write_atomic, write_text


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_text(path, "one")
    write_text(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_failed_write_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half of the n")
        raise error

    with pytest.raises(type(error)):
        write_atomic(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
