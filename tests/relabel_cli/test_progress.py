"""Contract: where there is no terminal a piece of work is one line at its end, one now and then before; a piece within
another is silent."""

from __future__ import annotations

import pytest

from relabel_cli import progress
from relabel_cli.progress import make_progress


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
    monkeypatch.setattr(progress, "_EVERY", 0.0)
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
