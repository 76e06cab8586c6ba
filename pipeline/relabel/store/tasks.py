"""An artefact's work cut into units: one unit, one file, which any worker may make and no other unit waits for.

Units stand in phases: a phase begins when the one before it is whole. A killed run makes the units that are not there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from relabel.core.progress import Progress
from relabel.store.workdir import Work

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Unit:
    """One file of an artefact's work.

    Attributes
    ----------
    file : str
        Its name in the work folder; the unit is done when the file is (Work.done).
    size : int
        What it counts in its phase's total.
    """

    file: str
    size: int


@dataclass(frozen=True)
class Phase:
    """Units that need nothing of each other.

    Attributes
    ----------
    title, measure : str
        What a bar calls the phase, and what the sizes of its units count ("captions").
    units : sequence of Unit
    """

    title: str
    measure: str
    units: Sequence[Unit]


class Units(ABC):
    """How an artefact is made. Each worker has its own, made from the same parameters; they meet in the work folder."""

    def start(self, work: Work) -> None:  # noqa: B027
        """Write what all units need (a vocabulary); in the asking process, before any unit."""

    @abstractmethod
    def phases(self, work: Work) -> Iterator[Phase]:
        """List the phases in order; each is asked for when the one before it is whole."""

    @abstractmethod
    def make(self, work: Work, unit: Unit, advance: Advance) -> None:
        """Make one unit's file through `work`, whole or not at all; in whichever process, on its own.

        The bytes depend on nothing but the parameters, the inputs and the files of earlier phases. `advance` is told
        how much of ``unit.size`` is done, in all exactly that much.
        """

    def finish(self, work: Work) -> None:  # noqa: B027
        """Note the facts, and exclude files that only other files needed; in the asking process, after all units."""


def make_all(units: Units, work: Work, progress: Progress) -> None:
    """Make every unit that is not done, in this process."""
    units.start(work)
    for phase in units.phases(work):
        with progress.bar(phase.title, sum(unit.size for unit in phase.units), phase.measure) as bar:
            for unit in phase.units:
                if work.done(unit.file):
                    bar.advance(unit.size)
                else:
                    units.make(work, unit, bar.advance)
    units.finish(work)
