"""Contract: the page shows the edits that the script makes; the script refuses a clone that lacks the edited lines."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from tests.examples.documents import ROOT

SCRIPT = ROOT / "examples" / "vse_infinity.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = spec_from_file_location("vse_infinity", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_edits_of_the_script(example: Any) -> None:
    page = (ROOT / "docs" / "vse-infinity.md").read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if line.startswith("+ ") or line.startswith("+from")]
    added = [
        line
        for edits in example.EDITS.values()
        for old, new in edits
        for line in new.splitlines()
        if line not in old.splitlines()
    ]
    assert len(shown) == len(added)
    for line in added:
        assert any(line in each for each in shown), line
    for edits in example.EDITS.values():
        for old, _ in edits:
            assert old.strip("\n") in page


def test_a_clone_without_the_edited_lines_is_refused(example: Any, tmp_path: Path) -> None:
    (tmp_path / "clone" / "lib").mkdir(parents=True)
    for name in ("train.py", "arguments.py", "lib/vse.py"):
        (tmp_path / "clone" / name).write_text("pass\n")
    with pytest.raises(SystemExit, match=r"train\.py: .* occurs 0 times, not once"):
        example.edited_copy(tmp_path / "clone", tmp_path / "copy", tmp_path)
