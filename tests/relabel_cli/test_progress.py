"""Contract: on a terminal a task is a bar with its count and time left in 80 columns. Elsewhere it is one line at its
end and one every ten seconds before; a task within another is silent."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from relabel_cli import progress
from relabel_cli.progress import Bars, make_progress


def test_a_bar_has_its_count_and_time_left_in_80_columns() -> None:
    bars, out = Bars(), io.StringIO()
    bars._console = Console(file=out, width=80, force_terminal=True, color_system=None)
    with (
        bars.bar("a title longer than its column", 12_345_678_901, "bytes") as outer,
        bars.bar("in", 600, "runs") as task,
    ):
        outer.advance(1_234_567_890)
        task.advance(20)
        bars._bars.refresh()
    lines = [line for line in out.getvalue().splitlines() if line.endswith("left")]
    assert any("1,234,567,890/12,345,678,901 bytes" in line for line in lines)
    assert any(line.startswith("in ") and " 20/600 runs" in line for line in lines)
    visible = [line.rpartition("\x1b[2K")[2] for line in lines]
    assert {len(line) for line in visible} == {80}


@pytest.mark.parametrize(
    ("count", "unit", "said"),
    [(1, "models", "1 model"), (1, "queries", "1 query"), (2, "queries", "2 queries"), (12_345, "runs", "12,345 runs")],
)
def test_a_line_says_how_many(count: int, unit: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with make_progress(quiet=False).bar("work", count, unit) as bar:
        bar.advance(count)
    out, err = capsys.readouterr()
    assert (out, err.rpartition(" in ")[0]) == ("", f"work: {said}")


def test_long_work_says_what_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    shown = make_progress(quiet=False)
    with shown.bar("outer", 4, "runs") as bar, shown.bar("inner", 1, "files") as inner:
        inner.advance()
        bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("outer: 1 of 4 runs, ")
    assert lines[1].startswith("outer: 1 run in ")
    assert len(lines) == 2


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = make_progress(quiet=True)
    quiet.note("done")
    with quiet.bar("work", 1, "files") as bar:
        bar.advance()
    assert capsys.readouterr() == ("", "")
