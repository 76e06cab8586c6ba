"""What an exact search promises; each kind of encoding has its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relabel.core.progress import Advance
from relabel.core.types import Rows, Scores
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.corpus import References


@dataclass(frozen=True, eq=False)
class Search:
    """What is looked for.

    Attributes
    ----------
    queries : References
        Q reference sets of corpus rows: single captions, or the references of images.
    exclude : (Q,) int32
        The corpus row that is the query itself and never its own neighbour; -1 where there is none.
    candidates : (C,) int32
        Corpus rows, ascending.
    k : int
        Neighbours asked for; see `width`.
    """

    queries: References
    exclude: Rows
    candidates: Rows
    k: int

    @property
    def width(self) -> int:
        """Neighbours every query gets: k, or as many as there are."""
        itself = bool(np.isin(self.exclude, self.candidates).any())
        return max(0, min(self.k, len(self.candidates) - itself))


class Finder(ABC):
    """Exact neighbours for one opened label.

    Neighbours stand by (-score, row), the query itself left out, other captions of its image kept. Scores are the bits
    that `Relevance.pairs` gives for query and candidate. Nothing depends on threads, memory, device or the order of
    tasks. Beside the encoding a finder holds at most ``runtime.memory`` bytes, whatever k and the number of queries.
    """

    search: Search

    def preliminary(self, work: Work) -> TaskGroup | None:
        """Tasks whose files `find` reads, where work is shared between queries."""
        return None

    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        """Make one preliminary task's file."""
        raise NotImplementedError

    @abstractmethod
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of some queries.

        Parameters
        ----------
        work : Work
            Where the preliminary files are.
        queries : range
            Numbers of queries, q of them.
        advance : callable
            Told how many more queries are done.

        Returns
        -------
        rows, scores : (q, width) int32 and float64
        """
