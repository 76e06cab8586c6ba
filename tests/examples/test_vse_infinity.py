"""Contract: the page shows the edits that the script makes; the script refuses a clone that lacks the edited lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.examples.conftest import Example
from tests.examples.documents import ROOT


def test_the_page_shows_the_edits_of_the_script(example: Example) -> None:
    page = (ROOT / "docs" / "vse-infinity.md").read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if line.startswith(("+ ", "+from"))]
    edits = [edit for of_file in example("vse_infinity").EDITS.values() for edit in of_file]
    added = [line for old, new in edits for line in new.splitlines() if line not in old.splitlines()]
    assert len(shown) == len(added)
    for line in added:
        assert any(line in each for each in shown), line
    for old, _ in edits:
        assert old.strip("\n") in page


def test_a_clone_without_the_edited_lines_is_refused(example: Example, tmp_path: Path) -> None:
    (tmp_path / "clone" / "lib").mkdir(parents=True)
    for name in ("train.py", "arguments.py", "lib/vse.py"):
        (tmp_path / "clone" / name).write_text("pass\n")
    with pytest.raises(SystemExit, match=r"train\.py: .* occurs 0 times, not once"):
        example("vse_infinity").edited_copy(tmp_path / "clone", tmp_path / "copy", tmp_path)
