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

_INSTANT = 0.5  # seconds between the first work of this run and the counts of finished files, at most
_WARM_UP = 5.0  # seconds of work before the first estimate
_INTERVAL = 10.0  # seconds between lines without a terminal
_TITLE = 26  # columns of a bar's title; count and time left take up to 44 of the other 54


def make_progress(quiet: bool) -> Progress:
    """Return no progress if quiet, bars if stderr is a terminal, else lines."""
    if quiet:
        return SILENT
    return Bars() if sys.stderr.isatty() else Lines()


class TimeLeft:
    """Estimate of the time left, from the mean rate since the first work.

    Work of an earlier run and the loading of models are left out of the rate. There is no estimate before a few seconds
    of work, when it would be wrong by more than a factor of two.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._start: float | None = None
        self._first = 0, 0.0

    def update(self, done: int, now: float) -> float | None:
        """Return the seconds left once `done` units are done at time `now`; None if they cannot be estimated."""
        # Finished files of an earlier run are counted within an instant.
        self._start = now if self._start is None else self._start
        if now - self._start < _INSTANT:
            self._first = done, now
            return None
        work, seconds = done - self._first[0], now - self._first[1]
        return (self._total - done) * seconds / work if seconds >= _WARM_UP and work > 0 else None


class Bars:
    """Bars with title, count and time left, which fit 80 columns.

    A task within a task is a second bar, which is removed when the task ends.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Any = None
        self._open: list[_Bar] = []

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Show one bar while the task runs."""
        if self._bars is not None:
            number = self._bars.add_task(title, total=total, unit=unit, left="")
            self._open.append(_Bar(self._bars, number))
            try:
                yield self._open[-1]
            finally:
                self._open.pop()
                self._bars.remove_task(number)
            return
        # rich allows one live display per terminal: inner tasks add their bars to this one.
        with self._display() as self._bars:
            self._open.append(_Bar(self._bars, self._bars.add_task(title, total=total, unit=unit, left="")))
            try:
                yield self._open[-1]
            finally:
                self._open.pop()
                self._bars = None

    def advance(self, n: int) -> None:
        """Advance the innermost bar."""
        if self._open:
            self._open[-1].advance(n)

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        self._console.print(text, highlight=False, markup=False)

    def _display(self) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        # Only the title is cut and only the bar stretches; count and time left are always complete.
        return Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", max_width=_TITLE)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}"),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            expand=True,
        )


class _Bar:
    """Task of one bar."""

    def __init__(self, bars: Any, number: int) -> None:
        self._bars, self._number, self._done = bars, number, 0
        self._time_left = TimeLeft(next(task.total for task in bars.tasks if task.id == number))

    def advance(self, n: int = 1) -> None:
        self._done += n
        left = self._time_left.update(self._done, time.monotonic())
        text = "" if left is None else f"{duration(left)} left"
        self._bars.update(self._number, advance=n, left=text)

    def reach(self, total: int) -> None:
        if total > self._done:
            self.advance(total - self._done)


class Lines:
    """A line at the end of each task, and every ten seconds before; a task within a task is silent."""

    def __init__(self) -> None:
        self._open: list[_Line] = []

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Count one task."""
        line = _Line(title, total, unit, quiet=bool(self._open))
        self._open.append(line)
        try:
            yield line
            # Not in `finally`: a task that fails has no last line.
            line.end()
        finally:
            self._open.pop()

    def advance(self, n: int) -> None:
        """Advance the innermost task."""
        if self._open:
            self._open[-1].advance(n)

    def note(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201


class _Line:
    """Task that prints lines."""

    def __init__(self, title: str, total: int, unit: str, quiet: bool) -> None:
        self._title, self._total, self._unit, self._quiet = title, total, unit, quiet
        self._done, self._start = 0, time.monotonic()
        self._last, self._time_left = self._start, TimeLeft(total)

    def advance(self, n: int = 1) -> None:
        self._done += n
        now = time.monotonic()
        seconds = self._time_left.update(self._done, now)
        if now - self._last >= _INTERVAL and self._done < self._total:
            self._last = now
            left = "" if seconds is None else f", {duration(seconds)} left"
            self._print(f"{self._done:,} of {self._total:,} {self._unit}{left}")

    def reach(self, total: int) -> None:
        if total > self._done:
            self.advance(total - self._done)

    def end(self) -> None:
        # "queries" becomes "query" and "models" "model" for a count of one.
        unit = self._unit if self._done != 1 else re.sub("(ie)?s$", lambda plural: "y" if plural[1] else "", self._unit)
        self._print(f"{self._done:,} {unit} in {time.monotonic() - self._start:.1f} s")

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)  # noqa: T201
