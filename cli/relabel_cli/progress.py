"""Progress on stderr: bars on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relabel.core.progress import SILENT, Progress, ProgressBar

_INTERVAL = 10.0  # seconds between lines without a terminal
_TITLE = 26  # columns of a bar's title; count and time left take up to 44 of the other 54


def make_progress(quiet: bool) -> Progress:
    """Return no progress if quiet, bars if stderr is a terminal, else lines."""
    if quiet:
        return SILENT
    return Bars() if sys.stderr.isatty() else Lines()


class Bars:
    """Bars with title, count and time left, which fit 80 columns.

    A task within a task is a second bar, which is removed when the task ends.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Any = None

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Show one bar while the task runs."""
        if self._bars is not None:
            number = self._bars.add_task(title, total=total, unit=unit)
            try:
                yield _Bar(self._bars, number)
            finally:
                self._bars.remove_task(number)
            return
        # rich allows one live display per terminal: inner tasks add their bars to this one.
        with self._display() as self._bars:
            try:
                yield _Bar(self._bars, self._bars.add_task(title, total=total, unit=unit))
            finally:
                self._bars = None

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        self._console.print(text, highlight=False, markup=False)

    def _display(self) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        # Only the title is cut and only the bar stretches; count and time left are always complete.
        return Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", max_width=_TITLE)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self._console,
            expand=True,
        )


class _Bar:
    """Task of one bar."""

    def __init__(self, bars: Any, number: int) -> None:
        self._bars, self._number = bars, number

    def advance(self, n: int = 1) -> None:
        self._bars.advance(self._number, n)


class Lines:
    """A line at the end of each task, and every ten seconds before; a task within a task is silent."""

    def __init__(self) -> None:
        self._depth = 0

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Count one task."""
        line = _Line(title, total, unit, quiet=self._depth > 0)
        self._depth += 1
        try:
            yield line
            # Not in `finally`: a task that fails has no last line.
            line.end()
        finally:
            self._depth -= 1

    def note(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201


class _Line:
    """Task that prints lines."""

    def __init__(self, title: str, total: int, unit: str, quiet: bool) -> None:
        self._title, self._total, self._unit, self._quiet = title, total, unit, quiet
        self._done, self._start = 0, time.monotonic()
        self._last = self._start

    def advance(self, n: int = 1) -> None:
        self._done += n
        now = time.monotonic()
        if now - self._last >= _INTERVAL and self._done < self._total:
            self._last = now
            # The mean rate so far: unlike the rate of late, it does not jump between shards of different length.
            left = (now - self._start) / self._done * (self._total - self._done)
            self._print(f"{self._done:,} of {self._total:,} {self._unit}, {left:.0f} s left")

    def end(self) -> None:
        # "queries" becomes "query" and "models" "model" for a count of one.
        unit = self._unit if self._done != 1 else re.sub("(ie)?s$", lambda plural: "y" if plural[1] else "", self._unit)
        self._print(f"{self._done:,} {unit} in {time.monotonic() - self._start:.1f} s")

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)  # noqa: T201
