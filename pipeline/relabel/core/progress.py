"""How long work tells the outside how far it is; the library itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[[int], None]
"""Takes the amount of work done since the last call."""


def ignore_progress(n: int) -> None:
    """Drop the amount: the `Advance` of a caller that shows no progress."""


class ProgressBar(Protocol):
    """One piece of work with a known total."""

    def advance(self, n: int = 1) -> None:
        """Say that n more units are done."""
        ...


class Progress(Protocol):
    """Where tasks are shown: a bar on a terminal, lines elsewhere, nowhere in a library call."""

    def bar(self, title: str, total: int, unit: str) -> AbstractContextManager[ProgressBar]:
        """Open a task of `total` units."""
        ...

    def note(self, text: str) -> None:
        """Say one line about what was done or skipped."""
        ...


class _Silent:
    def advance(self, n: int = 1) -> None:
        """Do nothing."""


class SilentProgress:
    """Shows nothing: the default of every library call."""

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Yield a task that shows nothing."""
        yield _Silent()

    def note(self, text: str) -> None:
        """Drop the line."""


SILENT = SilentProgress()
