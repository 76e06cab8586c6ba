"""Neighbours by a fuse: all candidates are scored, or the best candidates of a gate.

A fuse with trees cannot be bounded part by part, so an exact search scores every pair. With 150 trees this takes about
3 microseconds per pair and thread, half an hour for the 25,000 captions of a split. A gate serves larger corpora.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.progress import Advance, ignore_progress
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.sources.finder import Finder, Search
from relabel.sources.fuse.features import Scorer
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.fuse.relevance import FuseRelevance

_QUERIES = 64  # largest number of queries at a time


def make_finder(relevance: FuseRelevance, search: Search, pooling: Pooling, runtime: Runtime) -> Finder:
    """Return the finder for a fuse's parameters; raise as `FuseRelevance.finder` does."""
    if relevance.gate is not None:
        # The gate must find at least the k neighbours that are returned.
        wider = replace(search, k=max(search.k, relevance.gate_top))
        return GatedFinder(relevance, search, pooling, relevance.parts[relevance.gate].finder(wider, None, runtime))
    if slow := [label for label, part in relevance.model.parts.items() if part.pair_by_pair]:
        message = f"{', '.join(slow)} scores pair by pair: scoring every pair to find neighbours would take too long"
        raise UsageError(message, todo="Set `gate` to a label whose best candidates are scored.")
    return ExhaustiveFinder(relevance, search, pooling, runtime)


@dataclass(frozen=True, eq=False)
class ExhaustiveFinder(Finder):
    """Exact neighbours: every query is scored against all candidates."""

    relevance: FuseRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime

    @override
    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        count, width = len(self.search.candidates), self.search.width
        rows, scores = np.empty((len(queries), width), np.int32), np.empty((len(queries), width))
        # The block of scores takes at most a quarter of the memory.
        fit = self.runtime.memory // 4 // max(1, 8 * count)
        step = int(max(1, min(_QUERIES, fit)))
        for a in range(0, len(queries) if width else 0, step):
            batch = np.arange(queries.start + a, min(queries.start + a + step, queries.stop))
            block = self._scorer(self.search.queries.take(batch), self.pooling)
            for i, query in enumerate(batch.tolist()):
                best = select_best(block[i], self.search.candidates, int(self.search.exclude[query]), width)
                rows[a + i], scores[a + i] = best
            advance(len(batch))
        return rows, scores

    @cached_property
    def _scorer(self) -> Scorer:
        """Scorer against all candidates, prepared once for all queries."""
        return self.relevance.block_scorer(self.search.candidates)


@dataclass(frozen=True, eq=False)
class GatedFinder(Finder):
    """Best candidates by a fuse among the best candidates by its gate; a candidate that the gate misses is not found.

    Attributes
    ----------
    coarse : Finder
        Finder of the gate, with at least as many neighbours.
    """

    relevance: FuseRelevance
    search: Search
    pooling: Pooling
    coarse: Finder

    @override
    def preliminary(self, work: Work) -> TaskGroup | None:
        return self.coarse.preliminary(work)

    @override
    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        self.coarse.prepare(work, task, advance)

    @override
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        width = self.search.width
        rows, scores = np.empty((len(queries), width), np.int32), np.empty((len(queries), width))
        for a in range(0, len(queries) if width else 0, _QUERIES):
            batch = range(queries.start + a, min(queries.start + a + _QUERIES, queries.stop))
            # Rows are sorted, because `select_best` breaks ties by their order. Queries count once they are scored.
            passed = np.sort(self.coarse.find(work, batch, ignore_progress)[0], axis=1)
            each = np.repeat(np.arange(batch.start, batch.stop), passed.shape[1])
            fine = self.relevance.pairs(self.search.queries.take(each), passed.reshape(-1), self.pooling)
            # The gate has excluded the query itself already.
            for i, values in enumerate(fine.reshape(passed.shape)):
                rows[a + i], scores[a + i] = select_best(values, passed[i], -1, width)
            advance(len(batch))
        return rows, scores


def select_best(scores: Scores, candidates: Rows, exclude: int, k: int) -> tuple[Rows, Scores]:
    """Select k candidates by (-score, row), with NaN last and without `exclude`.

    Parameters
    ----------
    scores : (C,) float64
    candidates : (C,) int32
        Rows, ascending.
    exclude : int
        A row, or -1.
    k : int
        At least 1, and at most the number of candidates without `exclude`.

    Returns
    -------
    rows, scores : (k,) int32 and float64

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.fuse.search import select_best
    >>> rows, scores = select_best(np.array([0.2, np.nan, 0.9, 0.2]), np.array([4, 5, 6, 7], np.int32), 6, 2)
    >>> rows, scores
    (array([4, 7], dtype=int32), array([0.2, 0.2]))
    """
    # `last` is the k-th largest score. All candidates above it are selected, and of those equal to it the first rows.
    positions = np.flatnonzero(candidates != exclude)
    keys = np.where(np.isnan(scores), -np.inf, scores)[positions]
    last = np.partition(keys, len(keys) - k)[len(keys) - k]
    above, level = np.flatnonzero(keys > last), np.flatnonzero(keys == last)
    chosen = positions[np.concatenate([above[np.argsort(-keys[above], kind="stable")], level[: k - len(above)]])]
    return candidates[chosen], scores[chosen]
