"""The interface through which long work reports its progress. The library itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[[int], None]
"""Callback that takes the amount of work done since the last call."""


def ignore_progress(n: int) -> None:
    """Ignore the amount of work done: the `Advance` of a caller that shows no progress."""


class ProgressBar(Protocol):
    """Progress of one activity with a known total."""

    def advance(self, n: int = 1) -> None:
        """Add n to the amount of work done."""
        ...


class Progress(Protocol):
    """Display of progress: bars on a terminal, lines elsewhere, nothing in a library call."""

    def bar(self, title: str, total: int, unit: str) -> AbstractContextManager[ProgressBar]:
        """Open a progress bar of `total` units."""
        ...

    def note(self, text: str) -> None:
        """Show one line about work that was done or skipped."""
        ...


class _SilentBar:
    def advance(self, n: int = 1) -> None:
        """Do nothing."""


class SilentProgress:
    """Progress that shows nothing: the default of every library call.

    Examples
    --------
    >>> with SILENT.bar("encode", 10, "captions") as bar:
    ...     bar.advance(10)
    """

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Yield a bar that shows nothing."""
        yield _SilentBar()

    def note(self, text: str) -> None:
        """Drop the line."""


SILENT = SilentProgress()
