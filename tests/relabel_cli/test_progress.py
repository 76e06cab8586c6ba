"""Contract: on a terminal, a task is a bar with its count and remaining time in 80 columns. Otherwise it is one line
at its end, and one every ten seconds before. A nested task is silent.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from relabel_cli import progress
from relabel_cli.progress import Display, make_progress


def test_a_bar_has_its_count_and_time_left_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, out, now = Display(terminal=True), io.StringIO(), [0.0]
    shown._console = Console(file=out, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
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
        shown._rich.refresh()
    lines = [line.rpartition("\x1b[2K")[2] for line in out.getvalue().splitlines()]
    full = [line for line in lines if "1,234,567,890/12,345,678,901 bytes" in line]
    assert any(line.startswith("a title longer") and line.endswith("0:03:01") for line in full)
    assert {len(line) for line in full} == {80}
    assert any(line.startswith("in ") and " 15/600 runs" in line for line in lines)


@pytest.mark.parametrize(
    ("count", "unit", "said"),
    [(1, "models", "1 model"), (1, "queries", "1 query"), (2, "queries", "2 queries"), (12_345, "runs", "12,345 runs")],
)
def test_a_line_has_the_count(count: int, unit: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with make_progress(quiet=False).bar("work", count, unit) as bar:
        bar.advance(count)
    out, err = capsys.readouterr()
    assert (out, err.rpartition(" in ")[0]) == ("", f"work: {said}")


def test_long_work_reports_the_rest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = make_progress(quiet=False)
    shown.note("captions.csv: [mine] :cat: " + "x" * 100)
    with shown.bar("outer", 40, "runs") as bar:
        with shown.bar("inner", 1, "files") as inner:
            inner.advance()
        for now[0] in (12.0, 24.0):
            bar.advance(10)
    assert capsys.readouterr().err.splitlines() == [
        "captions.csv: [mine] :cat: " + "x" * 100,
        "outer: 10 of 40 runs",  # the first count gives no rate
        "outer: 20 of 40 runs, 24 s left",
        "outer: 20 runs in 24.0 s",
    ]


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = make_progress(quiet=True)
    quiet.note("done")
    quiet.advance(1)
    with quiet.bar("work", 1, "files") as bar:
        bar.advance()
        bar.reach(1)
    assert capsys.readouterr() == ("", "")
