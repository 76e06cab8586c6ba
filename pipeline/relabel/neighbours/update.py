"""Neighbours brought up to date: what an older table says is kept where it still stands, and only the rest is searched.

The result is, to the byte, what a search of everything would give.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relabel.neighbours.base import Finder, Rows, Scores, Search
from relabel.neighbours.inner import Inner
from relabel.neighbours.old_lists import OldLists
from relabel.neighbours.plan import Plan
from relabel.runtime import Runtime
from relabel.sources.base import Pooling, Relevance
from relabel.store.units import Advance, Phase, Unit
from relabel.store.work import Work

_PAIRS = 1 << 17  # scored at once
Numbers = NDArray[np.int64]


class UpdatedFinder(Finder):
    """Neighbours after a plan. See Finder.

    Parameters
    ----------
    relevance : Relevance
    search : Search
    pooling : Pooling
    runtime : Runtime
    plan : Plan
    old : OldLists
    name : str
        Inner folder for what its own finders share.
    """

    def __init__(
        self,
        relevance: Relevance,
        search: Search,
        pooling: Pooling,
        runtime: Runtime,
        plan: Plan,
        old: OldLists,
        name: str,
    ) -> None:
        self.relevance, self.search, self.pooling, self.runtime = relevance, search, pooling, runtime
        self.plan, self.old, self.name = plan, old, name

    @cached_property
    def rest(self) -> Numbers:
        """Numbers of the queries that are searched anew, ascending."""
        return np.setdiff1d(np.arange(len(self.search.queries)), self.plan.kept)

    @cached_property
    def finders(self) -> dict[str, Finder]:
        """Finder of the kept queries among what was added, and of the rest among all; none where nothing is asked."""
        plan, search, found = self.plan, self.search, {}
        if len(plan.kept) and len(plan.added):
            nothing = np.full(len(plan.kept), -1, np.int32)
            found["added"] = Search(search.queries.take(plan.kept), nothing, plan.added, search.k)
        if len(self.rest):
            itself = search.exclude[self.rest]
            found["rest"] = Search(search.queries.take(self.rest), itself, search.candidates, search.k)
        runtime = replace(self.runtime, memory=self.runtime.memory // max(1, len(found)))
        return {n: self.relevance.finder(asked, self.pooling, runtime) for n, asked in found.items()}

    def preliminary(self, work: Work) -> Phase | None:
        """See Finder.preliminary: what both finders need, in one phase."""
        phases = {n: finder.preliminary(self._inner(work, n)) for n, finder in self.finders.items()}
        found = {n: phase for n, phase in phases.items() if phase is not None}
        if not found:
            return None
        units = [Unit(f"{self.name}/{n}/{u.file}", u.size) for n, phase in found.items() for u in phase.units]
        any_of = next(iter(found.values()))
        return Phase(any_of.title, any_of.measure, units)

    def prepare(self, work: Work, unit: Unit, advance: Advance) -> None:
        """See Finder.prepare."""
        which, file = unit.file.removeprefix(f"{self.name}/").split("/", 1)
        self.finders[which].prepare(self._inner(work, which), Unit(file, unit.size), advance)

    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """See Finder.find."""
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for which, numbers in (("added", self.plan.kept), ("rest", self.rest)):
            lo, hi = np.searchsorted(numbers, [queries.start, queries.stop]).tolist()
            if lo < hi:
                find = self._merged if which == "added" else self._anew
                at = numbers[lo:hi] - queries.start
                rows[at], scores[at] = find(work, range(lo, hi), advance)
        return rows, scores

    def _anew(self, work: Work, some: range, advance: Advance) -> tuple[Rows, Scores]:
        return self.finders["rest"].find(self._inner(work, "rest"), some, advance)

    def _merged(self, work: Work, some: range, advance: Advance) -> tuple[Rows, Scores]:
        """Merge the old neighbours of some kept queries with the best of what was added."""
        part = slice(some.start, some.stop)
        rows = self.plan.moved[self.old.neighbours(self.plan.places[part]) - self.plan.first]
        scores = self._scores(self.plan.kept[part], rows)
        if "added" in self.finders:
            more = self.finders["added"].find(self._inner(work, "added"), some, advance)
            rows, scores = np.hstack([rows, more[0]]), np.hstack([scores, more[1]])
            order = np.lexsort((rows, -scores))[:, : self.search.width]
            rows, scores = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
        else:
            advance(len(some))
        return rows, scores

    def _scores(self, numbers: Numbers, rows: Rows) -> Scores:
        """Score the old neighbours again: the table holds them rounded, and roundings can tie."""
        scores, step = np.empty(rows.shape), max(1, _PAIRS // max(1, rows.shape[1]))
        for a in range(0, len(rows), step):
            asked = self.search.queries.take(np.repeat(numbers[a : a + step], rows.shape[1]))
            found = self.relevance.pairs(asked, rows[a : a + step].reshape(-1), self.pooling)
            scores[a : a + step] = found.reshape(-1, rows.shape[1])
        return scores

    def _inner(self, work: Work, which: str) -> Inner:
        return Inner.of(work, f"{self.name}/{which}")
