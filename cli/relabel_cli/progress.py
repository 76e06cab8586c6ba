"""Progress on stderr: bars on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relabel.core.runtime import SILENT, Progress, ProgressBar
from relabel.core.tables import duration

_INTERVAL = 10.0  # seconds between lines without a terminal
_PERIOD = 600.0  # seconds of work from which the time left is estimated; a shard takes about one minute
_TITLE = 26  # columns of a bar's title


def make_progress(quiet: bool) -> Progress:
    """Return no progress if quiet, else bars or lines."""
    return SILENT if quiet else Display(terminal=sys.stderr.isatty())


class Display:
    """Tasks with title, count and time left, the innermost last.

    On a terminal each has a bar. Elsewhere the outermost prints a line at its end, and one every ten seconds before.
    """

    def __init__(self, terminal: bool) -> None:
        from rich.console import Console

        self._console, self._terminal = Console(stderr=True), terminal
        self._open: list[_Bar] = []
        self._rich: Any = None

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Show one task while it runs."""
        outermost = not self._open
        if outermost:
            self._rich = self._make_rich()
            if self._terminal:
                self._rich.start()
        number = self._rich.add_task(title, total=total, unit=unit)
        bar = _Bar(self._rich, number, lines=outermost and not self._terminal)
        self._open.append(bar)
        try:
            yield bar
            # Not in `finally`: a task that fails has no last line.
            bar.end()
        finally:
            self._open.remove(bar)
            if outermost and self._terminal:
                self._rich.stop()
            elif not outermost:
                self._rich.remove_task(number)

    def advance(self, n: int) -> None:
        """Add n to the work of the innermost task."""
        if self._open:
            self._open[-1].advance(n)

    def note(self, text: str) -> None:
        """Print one line, above the bars."""
        self._console.out(text, highlight=False)

    def _make_rich(self) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        # Every task has a title, a unit and a total, so that the count is text.
        count = TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}")
        title = TextColumn(f"{{task.description:.{_TITLE}}}", markup=False)
        columns = title, BarColumn(), count, TimeRemainingColumn()
        return Progress(*columns, console=self._console, speed_estimate_period=_PERIOD, get_time=time.monotonic)


class _Bar:
    """One task. `lines`: whether it prints lines."""

    def __init__(self, rich: Any, number: int, lines: bool) -> None:
        self._rich, self._lines, self._start = rich, lines, time.monotonic()
        self._task = next(task for task in rich.tasks if task.id == number)
        self._last = self._start

    def advance(self, n: int = 1) -> None:
        self._rich.advance(self._task.id, n)
        if time.monotonic() - self._last >= _INTERVAL and not self._task.finished:
            self._last = time.monotonic()
            # rich leaves the first count out of the rate: it is the work of an earlier run.
            seconds = self._task.time_remaining
            left = "" if seconds is None else f", {duration(seconds)} left"
            self._print(f"{self._task.completed:,} of {self._task.total:,} {self._task.fields['unit']}{left}")

    def reach(self, total: int) -> None:
        self.advance(max(0, total - self._task.completed))

    def end(self) -> None:
        done, unit = self._task.completed, self._task.fields["unit"]
        # "queries" becomes "query" and "models" "model" for a count of one.
        unit = unit if done != 1 else re.sub("(ie)?s$", lambda plural: "y" if plural[1] else "", unit)
        self._print(f"{done:,} {unit} in {time.monotonic() - self._start:.1f} s")

    def _print(self, text: str) -> None:
        if self._lines:
            sys.stderr.write(f"{self._task.description}: {text}\n")
            sys.stderr.flush()
