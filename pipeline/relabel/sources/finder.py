"""Contract of an exact search for neighbours. Each kind of encoding implements its own `Finder`."""

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
    """Queries, candidates and number of neighbours of a search.

    Attributes
    ----------
    queries : References
        Q reference sets of corpus rows: single captions, or the references of images.
    exclude : (Q,) int32
        Corpus row that is the query itself and never its own neighbour; -1 if there is none.
    candidates : (C,) int32
        Corpus rows, ascending.
    k : int
        Requested number of neighbours; see `width`.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.corpus import References
    >>> from relabel.sources.finder import Search
    >>> rows = np.arange(4, dtype=np.int32)
    >>> Search(References.single(rows), exclude=rows, candidates=rows, k=10).width
    3
    """

    queries: References
    exclude: Rows
    candidates: Rows
    k: int

    @property
    def width(self) -> int:
        """Number of neighbours per query: k, or fewer if there are not as many candidates."""
        # Every list has one width, so a single query that is a candidate itself shortens all of them.
        itself = bool(np.isin(self.exclude, self.candidates).any())
        return max(0, min(self.k, len(self.candidates) - itself))


class Finder(ABC):
    """Exact neighbours for one opened label.

    Neighbours are ordered by (-score, row). The query itself is left out, other captions of its image are kept. Scores
    are bit-identical to `Relevance.pairs` of query and candidate. Results do not depend on threads, memory, device or
    the order of tasks. Besides the encoding, a finder holds at most ``runtime.memory`` bytes, for any k and any number
    of queries.
    """

    search: Search

    def preliminary(self, work: Work) -> TaskGroup | None:
        """Return the tasks whose files `find` reads, if queries share work; else None."""
        return None

    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the file of one preliminary task."""
        raise NotImplementedError

    @abstractmethod
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of q queries.

        Parameters
        ----------
        work : Work
            Work folder with the preliminary files.
        queries : range
            Numbers of the q queries.
        advance : callable
            Receives the number of further queries that are done.

        Returns
        -------
        rows, scores : (q, width) int32 and float64
        """
