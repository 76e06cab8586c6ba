"""Progress on stderr: bars on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from relabel.core.runtime import Progress, ProgressBar
from relabel.core.tables import duration
from relabel_cli.terminal import escape

_INTERVAL = 10.0  # seconds between lines without a terminal
_PERIOD = 600.0  # seconds of work from which the time left is estimated; a shard takes about one minute
_TITLE = 26  # columns of a bar's title


class Display(Progress):
    """Tasks with title, count and time left, the innermost last.

    On a terminal each has a bar. Elsewhere the outermost prints a line at its end, and one every ten seconds before.
    """

    def __init__(self, console: Console) -> None:
        # Every task has a title, a unit and a total, so that the count is text.
        count = TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}")
        title = TextColumn(f"{{task.description:.{_TITLE}}}", markup=False)
        self._console, self._open = console, list[_Bar]()
        self._artefacts: ProgressBar | None = None
        self._bars = Bars(
            *(title, BarColumn(), count, TimeRemainingColumn()),
            console=console,
            speed_estimate_period=_PERIOD,
            get_time=time.monotonic,
            disable=not console.is_terminal,
        )

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Show one task while it runs."""
        if not self._open:
            self._bars.start()
        number = self._bars.add_task(escape(title), total=total, unit=unit)
        bar = _Bar(self._bars, number, lines=not (self._open or self._console.is_terminal))
        self._open.append(bar)
        try:
            yield bar
            # Not in `finally`: a task that fails has no last line.
            bar.say(f" in {time.monotonic() - bar.start:.1f} s")
        finally:
            self._open.remove(bar)
            self._bars.remove_task(number)
            if not self._open:
                self._bars.stop()

    def advance(self, n: int) -> None:
        """Add n to the work of the innermost task."""
        if self._open:
            self._open[-1].advance(n)

    @contextmanager
    def artefacts(self, total: int) -> Iterator[None]:
        """Show the bar of several artefacts on a terminal. Elsewhere their own lines tell more."""
        if not self._console.is_terminal:
            yield
            return
        try:
            with self.bar("artefacts", total, "artefacts") as self._artefacts:
                yield
        finally:
            self._artefacts = None

    def made(self, text: str) -> None:
        """Count an artefact in the bar of several; without that bar, print its line."""
        if self._artefacts is None:
            self.note(text)
        else:
            self._artefacts.advance()

    def note(self, text: str) -> None:
        """Print one line, above the bars."""
        self._console.out(escape(text), highlight=False)


class _Bar(ProgressBar):
    """One task. `lines`: whether it prints lines."""

    def __init__(self, bars: Bars, number: TaskID, lines: bool) -> None:
        self._bars, self._lines = bars, lines
        self._task: Any = next(task for task in bars.tasks if task.id == number)
        self.start = self._last = time.monotonic()

    def advance(self, n: int = 1) -> None:
        self._bars.advance(self._task.id, n)
        if time.monotonic() - self._last >= _INTERVAL and not self._task.finished:
            self._last = time.monotonic()
            # rich leaves the first count out of the rate: it is the work of an earlier run.
            seconds = self._task.time_remaining
            self.say("" if seconds is None else f", {duration(seconds)} left")

    def reach(self, total: int) -> None:
        self.advance(max(0, total - self._task.completed))

    def say(self, rest: str) -> None:
        """Print the count in a line."""
        if self._lines:
            count = f"{self._task.completed:,} of {self._task.total:,} {self._task.fields['unit']}"
            self._bars.console.out(f"{self._task.description}: {count}{rest}", highlight=False)
