"""Contract: on a terminal, a task is a bar with its count and remaining time in 80 columns. Otherwise it is one line
at its end, and one every ten seconds before. A nested task is silent.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from relabel_cli import progress
from relabel_cli.progress import Display


def test_a_bar_has_its_count_and_time_left_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = Display(Console(file=out, width=80, force_terminal=True, color_system=None))
    with (
        shown.bar("a title longer than its column", 12_345_678_901, "bytes") as outer,
        shown.bar("in", 600, "runs") as task,
    ):
        shown.advance(10)
        task.reach(15)
        task.reach(5)
        outer.advance(617_283_945)
        now[0] = 10.0
        outer.advance(617_283_945)
        shown._bars.refresh()
    lines = [line.rpartition("\x1b[2K")[2] for line in out.getvalue().splitlines()]
    full = [line for line in lines if "1,234,567,890/12,345,678,901 bytes" in line]
    assert any(line.startswith("a title longer") and line.endswith("0:03:01") for line in full)
    assert {len(line) for line in full} == {80}
    assert any(line.startswith("in ") and " 15/600 runs" in line for line in lines)


def test_long_work_reports_the_rest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = Display(Console(stderr=True))
    shown.note("captions.csv: [mine] :cat: " + "x" * 100)
    with shown.bar("outer", 40, "runs") as bar:
        with shown.bar("inner", 1, "files") as inner:
            inner.advance()
        for now[0] in (12.0, 24.0):
            bar.advance(10)
    assert capsys.readouterr().err.splitlines() == [
        "captions.csv: [mine] :cat: " + "x" * 100,
        "outer: 10 of 40 runs",  # the first count gives no rate
        "outer: 20 of 40 runs, 0:00:24 left",
        "outer: 20 of 40 runs in 24.0 s",
    ]
