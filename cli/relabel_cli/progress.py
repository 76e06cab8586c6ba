"""Progress on stderr: one line on a terminal; elsewhere a line for each artefact, and one a minute of long work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from relabel.core.runtime import Progress, ProgressBar
from relabel.core.tables import duration
from relabel_cli.terminal import escape

_INTERVAL = 60.0  # seconds between lines without a terminal
_PERIOD = 600.0  # seconds of work from which the time left is estimated; a shard takes about one minute
_TITLE = 36  # columns of a title with a count
_STATUS = 56  # columns of a title without
_BAR = 12  # columns of a bar; a line fits into 80 columns


class Display(Progress):
    """Progress display of a command, with a count and the remaining time.

    A terminal shows one line. For several artefacts, it names the current one and the remaining time of all. Otherwise,
    an activity prints a line every minute, and another at its end if it took longer.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._open = console, list[_Bar]()
        self._left, self._total = dict[Path, float](), 0
        self._bars = Bars(
            *(_Column(self._title), BarColumn(_BAR), _Column(_count), _Column(self._time_left)),
            console=console,
            speed_estimate_period=_PERIOD,
            get_time=time.monotonic,
            transient=True,
            disable=not console.is_terminal,
        )

    @contextmanager
    def bar(self, title: str, total: int | None, unit: str) -> Iterator[ProgressBar]:
        """Show an activity while it runs. `total`: None if the amount of work is not known."""
        if not self._open:
            self._bars.start()
        number = self._bars.add_task(escape(title), total=total, unit=unit, visible=False)
        task = next(task for task in self._bars.tasks if task.id == number)
        outermost = total is not None and all(bar.task.total is None for bar in self._open)
        bar = _Bar(self._bars, task, lines=outermost and not self._console.is_terminal)
        self._open.append(bar)
        self._show()
        try:
            yield bar
            # Not in `finally`: a task that fails has no last line.
            if time.monotonic() - bar.start >= _INTERVAL:
                bar.say(f" in {duration(time.monotonic() - bar.start)}")
        finally:
            self._open.remove(bar)
            self._bars.remove_task(number)
            self._show()
            if not self._open:
                self._bars.stop()

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Show a text on a terminal while work of an unknown amount runs."""
        with self.bar(text, None, ""):
            yield

    def advance(self, n: int) -> None:
        """Add n to the work of the innermost activity with a known amount."""
        if bar := next((bar for bar in reversed(self._open) if bar.task.total is not None), None):
            bar.advance(n)

    @contextmanager
    def artefacts(self, seconds: Mapping[Path, float]) -> Iterator[None]:
        """Number the artefacts that are made meanwhile; on a terminal, their lines are not printed."""
        self._left, self._total = {**seconds}, len(seconds)
        try:
            with self.status(""):
                yield
        finally:
            self._left, self._total = {}, 0

    def made(self, out: Path, text: str) -> None:
        """Count an artefact among several on a terminal; otherwise print its line."""
        self._left.pop(out, None)
        if not (self._total and self._console.is_terminal):
            self.note(text)

    def note(self, text: str) -> None:
        """Print one line, above that of the progress."""
        self._console.out(escape(text), highlight=False)

    def _show(self) -> None:
        """Show only the innermost status, or the outermost bar: bars inside it are parts of its work."""
        if not self._open:
            return
        with_total = [bar for bar in self._open if bar.task.total is not None]
        shown = self._open[-1] if self._open[-1].task.total is None else with_total[0]
        for bar in self._open:
            self._bars.update(bar.task.id, visible=bar is shown)
        # Refresh now, because an import may block the thread that draws.
        self._bars.refresh()

    def _title(self, task: Task) -> str:
        number = min(self._total - len(self._left) + 1, self._total)
        place = f"artefact {number} of {self._total}" if self._total else ""
        return ": ".join(filter(None, (place, task.description)))[: _STATUS if task.total is None else _TITLE]

    def _time_left(self, task: Task) -> str:
        """Return the time left of the activity, or of all artefacts: the shown one is the first that is not made."""
        seconds = task.time_remaining
        if self._left:
            current, *later = self._left.values()
            seconds = max(current * (1 - task.percentage / 100), seconds or 0) + sum(later)
        return duration(seconds) if seconds and seconds >= 1 else ""


class _Column(ProgressColumn):
    """A column of text."""

    def __init__(self, text: Callable[[Task], str]) -> None:
        super().__init__(Column(no_wrap=True))
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text(task))


def _count(task: Task) -> str:
    unit = task.fields["unit"]
    return "" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f} {unit}"


class _Bar(ProgressBar):
    """One activity. `lines`: whether it prints lines."""

    def __init__(self, bars: Bars, task: Task, lines: bool) -> None:
        self._bars, self._lines, self.task = bars, lines, task
        self.start = self._last = time.monotonic()

    def advance(self, n: int = 1) -> None:
        self._bars.advance(self.task.id, n)
        if time.monotonic() - self._last >= _INTERVAL and not self.task.finished:
            self._last = time.monotonic()
            # rich leaves the first count out of the rate: it is the work of an earlier run.
            seconds = self.task.time_remaining
            self.say("" if seconds is None else f", {duration(seconds)} left")

    def reach(self, total: int) -> None:
        self.advance(max(0, total - int(self.task.completed)))

    def say(self, rest: str) -> None:
        """Print the count in a line."""
        if self._lines:
            count = f"{self.task.completed:,} of {self.task.total:,} {self.task.fields['unit']}"
            self._bars.console.out(f"{self.task.description}: {count}{rest}", highlight=False)
