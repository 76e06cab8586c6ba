"""Contract: on a terminal, a task is a bar with its count and remaining time in 80 columns. Otherwise it is one line
at its end, and one every ten seconds before. A nested task is silent.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from relabel_cli import progress
from relabel_cli.progress import Bars, TimeLeft, make_progress


def test_a_bar_has_its_count_and_time_left_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, 10.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now, 10.0))
    bars, out = Bars(), io.StringIO()
    bars._console = Console(file=out, width=80, force_terminal=True, color_system=None)
    with (
        bars.bar("a title longer than its column", 12_345_678_901, "bytes") as outer,
        bars.bar("in", 600, "runs") as task,
    ):
        outer.advance(617_283_945)
        task.advance(10)
        outer.advance(617_283_945)
        task.advance(10)
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
def test_a_line_has_the_count(count: int, unit: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with make_progress(quiet=False).bar("work", count, unit) as bar:
        bar.advance(count)
    out, err = capsys.readouterr()
    assert (out, err.rpartition(" in ")[0]) == ("", f"work: {said}")


def test_long_work_reports_the_rest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = make_progress(quiet=False)
    with shown.bar("outer", 40, "runs") as bar, shown.bar("inner", 1, "files") as inner:
        inner.advance()
        for now[0] in (12.0, 24.0):
            bar.advance(10)
    assert capsys.readouterr().err.splitlines() == [
        "outer: 10 of 40 runs",  # one unit of work gives no rate
        "outer: 20 of 40 runs, 24 s left",
        "outer: 20 runs in 24.0 s",
    ]


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = make_progress(quiet=True)
    quiet.note("done")
    with quiet.bar("work", 1, "files") as bar:
        bar.advance()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("finished", [0, 300])
@pytest.mark.parametrize("delay", [0.0, 40.0])
def test_estimates_are_right_after_five_seconds_or_absent(finished: int, delay: float) -> None:
    """Exclude the work of an earlier run and the time before the first unit; let the rate vary by a third."""
    total, done, now = 1000, finished, delay
    time_left, shown = TimeLeft(total), list[float]()
    seconds = [0.07 if (unit // 50) % 2 else 0.13 for unit in range(total - finished)]
    if finished:
        assert time_left.update(finished, now) is None
    for i, each in enumerate(seconds):
        now, done = now + each, done + 1
        left = time_left.update(done, now)
        assert left is None or now - delay > 5
        if left is not None:
            shown.append(left)
            remaining = sum(seconds[i + 1 :])
            assert remaining / 2 - 1 <= left <= 2 * remaining + 1
    assert len(shown) > 0.9 * (total - finished) - 100
