"""Neighbours by a fuse: every candidate scored, or what a gate finds best.

A fuse is no sum that could be bounded part by part, so an exact search scores all: about 3 microseconds a pair and
thread with 150 trees, half an hour for the 25,000 captions of a split. For more captions than that there is the gate.
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

_TOGETHER = 64  # queries at once, if they fit


def fuse_finder(relevance: FuseRelevance, search: Search, pooling: Pooling, runtime: Runtime) -> Finder:
    """Make the finder that suits a fuse's parameters; raises as `FuseRelevance.finder`."""
    if relevance.gate is not None:
        wider = replace(search, k=max(search.k, relevance.gate_top))
        return GatedFinder(relevance, search, pooling, relevance.parts[relevance.gate].finder(wider, None, runtime))
    if slow := [label for label, part in relevance.model.parts.items() if part.pair_by_pair]:
        what = f"{', '.join(slow)} scores pair by pair: not every pair can be scored to find neighbours"
        raise UsageError(what, todo="Set `gate` to a label whose best candidates are scored.")
    return EveryCandidate(relevance, search, pooling, runtime)


@dataclass(frozen=True, eq=False)
class EveryCandidate(Finder):
    """Exact neighbours: every query against all candidates, some queries at a time. See Finder."""

    relevance: FuseRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime

    @override
    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        count, width = len(self.search.candidates), self.search.width
        rows, scores = np.empty((len(queries), width), np.int32), np.empty((len(queries), width))
        fit = self.runtime.memory // 4 // max(1, 8 * count)
        step = int(max(1, min(_TOGETHER, fit)))
        for a in range(0, len(queries) if width else 0, step):
            some = np.arange(queries.start + a, min(queries.start + a + step, queries.stop))
            block = self._scorer(self.search.queries.take(some), self.pooling)
            for i, query in enumerate(some.tolist()):
                best = best_of(block[i], self.search.candidates, int(self.search.exclude[query]), width)
                rows[a + i], scores[a + i] = best
            advance(len(some))
        return rows, scores

    @cached_property
    def _scorer(self) -> Scorer:
        return self.relevance.block_scorer(self.search.candidates)


@dataclass(frozen=True, eq=False)
class GatedFinder(Finder):
    """The best by a fuse of those that its gate finds best; a candidate that the gate misses is missed.

    Attributes
    ----------
    coarse : Finder
        The gate's, of more candidates than are asked for.
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
        for a in range(0, len(queries) if width else 0, _TOGETHER):
            some = range(queries.start + a, min(queries.start + a + _TOGETHER, queries.stop))
            found = np.sort(self.coarse.find(work, some, ignore_progress)[0], axis=1)
            each = np.repeat(np.arange(some.start, some.stop), found.shape[1])
            fine = self.relevance.pairs(self.search.queries.take(each), found.reshape(-1), self.pooling)
            for i, values in enumerate(fine.reshape(found.shape)):
                rows[a + i], scores[a + i] = best_of(values, found[i], -1, width)
            advance(len(some))
        return rows, scores


def best_of(scores: Scores, candidates: Rows, exclude: int, k: int) -> tuple[Rows, Scores]:
    """Pick k candidates by (-score, row), NaN last, `exclude` never.

    Parameters
    ----------
    scores : (C,) float64
    candidates : (C,) int32
        Rows, ascending.
    exclude : int
        A row, or -1.
    k : int
        At most as many as there are beside `exclude`; at least 1.
    """
    places = np.flatnonzero(candidates != exclude)
    keys = np.where(np.isnan(scores), -np.inf, scores)[places]
    last = np.partition(keys, len(keys) - k)[len(keys) - k]
    above, level = np.flatnonzero(keys > last), np.flatnonzero(keys == last)
    chosen = places[np.concatenate([above[np.argsort(-keys[above], kind="stable")], level[: k - len(above)]])]
    return candidates[chosen], scores[chosen]
