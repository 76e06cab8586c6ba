"""Progress on stderr: a bar with total and ETA on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relabel.core.progress import SILENT, Progress, ProgressBar

_EVERY = 10.0  # seconds between lines where there is no terminal


def make_progress(quiet: bool) -> Progress:
    """Choose by what stderr is."""
    if quiet:
        return SILENT
    return Bars() if sys.stderr.isatty() else Lines()


class Bars:
    """One rich display; a task within a task is a second bar that goes when it is done."""

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
        with self._display() as self._bars:
            try:
                yield _Bar(self._bars, self._bars.add_task(title, total=total, unit=unit))
            finally:
                self._bars = None

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, highlight=False, markup=False)

    def _display(self) -> Any:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
        )


class _Bar:
    def __init__(self, bars: Any, number: int) -> None:
        self._bars, self._number = bars, number

    def advance(self, n: int = 1) -> None:
        self._bars.advance(self._number, n)


class Lines:
    """A line at the end of each task, and every ten seconds in between; a task within a task says nothing."""

    def __init__(self) -> None:
        self._depth = 0

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Count one task."""
        line = _Line(title, total, unit, quiet=self._depth > 0)
        self._depth += 1
        try:
            yield line
            line.end()
        finally:
            self._depth -= 1

    def note(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201


class _Line:
    def __init__(self, title: str, total: int, unit: str, quiet: bool) -> None:
        self._title, self._total, self._unit, self._quiet = title, total, unit, quiet
        self._done, self._start = 0, time.monotonic()
        self._last = self._start

    def advance(self, n: int = 1) -> None:
        self._done += n
        now = time.monotonic()
        if now - self._last >= _EVERY and self._done < self._total:
            self._last = now
            left = (now - self._start) / self._done * (self._total - self._done)
            self._print(f"{self._done:,} of {self._total:,} {self._unit}, {left:.0f} s left")

    def end(self) -> None:
        unit = self._unit if self._done != 1 else re.sub("(ie)?s$", lambda plural: "y" if plural[1] else "", self._unit)
        self._print(f"{self._done:,} {unit} in {time.monotonic() - self._start:.1f} s")

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)  # noqa: T201
