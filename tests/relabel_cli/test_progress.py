"""Contract: a terminal shows one bar in place of the lines of several artefacts; a log has all lines and no bar."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from relabel_cli.progress import Display


@pytest.mark.parametrize("terminal", [True, False])
def test_artefacts_are_a_bar_on_a_terminal_and_lines_elsewhere(terminal: bool) -> None:
    output = io.StringIO()
    display = Display(Console(file=output, force_terminal=terminal, width=100))
    with display.artefacts(2):
        for name in ("one", "two"):
            display.made(f"encoding {name}: built")
        display.note("a note")
    display.made("page: built")
    shown = output.getvalue()
    assert ("/2 artefacts" in shown) == terminal
    assert ("encoding one: built" in shown) != terminal
    assert "a note" in shown
    assert "page: built" in shown
