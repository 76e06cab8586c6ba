"""Base classes for exact neighbour search. Each kind of encoding implements a `Finder`.

A `SlabFinder` builds an inverted index of one slab of candidates after another, and keeps the k best of each query. A
`BlockFinder` scores blocks of queries and candidates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, Self, TypeVar

import numpy as np
from typing_extensions import override

from relabel.core.runtime import Advance, Runtime, ignore_progress
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.store.workdir import Step, Work

Slab = TypeVar("Slab")
EMPTY_SLOT = np.iinfo(np.int32).max
"""Row of an unused slot of a heap. Its score is -1."""
_QUERIES = 64  # maximum number of queries per block
_SMALLEST = 4096  # minimum number of candidates per slab, even if memory is short


@dataclass(frozen=True, eq=False)
class Search:
    """Queries, candidates and number of neighbours of a search.

    `queries`: Q reference sets of corpus rows: single captions, or the references of images.
    `exclude`: (Q,) int32; corpus row of the query itself, to exclude from its neighbours, or -1.
    `candidates`: (C,) int32; ascending corpus rows.
    `k`: requested number of neighbours; see `width`.
    """

    queries: References
    exclude: Rows
    candidates: Rows
    k: int

    @property
    def width(self) -> int:
        """Number of neighbours per query: k, or fewer if there are too few candidates."""
        # All lists have the same width, so one query that is itself a candidate reduces the width of all lists.
        itself = bool(np.isin(self.exclude, self.candidates).any())
        return max(0, min(self.k, len(self.candidates) - itself))


class Finder(ABC):
    """Exact neighbour search for one opened label.

    Neighbours are sorted by (-score, row). The query itself is excluded, other captions of its image are not. Scores
    are bit-identical to `Relevance.pairs` of query and candidate. Results do not depend on threads, memory, device or
    the order of tasks. In addition to the encoding, a finder uses at most ``runtime.memory`` bytes, for any k and any
    number of queries.
    """

    search: Search

    def build(self, work: Work) -> Step | None:
        """Return the step for work that queries share, or None. `find` reads its files."""
        return None

    @abstractmethod
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of q queries.

        `work`: work folder with the files of `build`. `queries`: numbers of the q queries. `advance`: called with the
        number of queries finished since the last call. Returns `rows, scores`, (q, width) int32 and float64.
        """


@dataclass(frozen=True, eq=False)
class BlockFinder(Finder):
    """Finder that scores blocks of all candidates, or of the best candidates of a gate.

    `gate`: finder of the gate, with at least as many neighbours.
    """

    relevance: Any
    search: Search
    pooling: Pooling
    runtime: Runtime
    gate: Finder | None

    @classmethod
    def behind(cls, relevance: Any, search: Search, pooling: Pooling, gate: Any, top: int, runtime: Runtime) -> Self:
        """Return a finder that scores the `top` best candidates of a gate. `gate`: relevance of another label."""
        # The gate must find at least k candidates.
        gate_finder = gate.finder(replace(search, k=max(search.k, top)), None, runtime)
        return cls(relevance, search, pooling, runtime, gate_finder)

    @override
    def build(self, work: Work) -> Step | None:
        return None if self.gate is None else self.gate.build(work)

    @override
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        width, every = self.search.width, self.search.candidates
        rows, scores = np.empty((len(queries), width), np.int32), np.empty((len(queries), width))
        # The block of scores takes at most a quarter of the memory.
        step = max(1, min(_QUERIES, self.runtime.memory // 4 // max(1, 8 * len(every))))
        for a in range(0, len(queries) if width else 0, step):
            batch = range(queries.start + a, min(queries.start + a + step, queries.stop))
            if self.gate is None:
                candidates = self._within_reach(batch)
            else:
                # Progress is reported after scoring.
                candidates = list(np.sort(self.gate.find(work, batch, ignore_progress)[0], axis=1))
            sizes = [len(group) for group in candidates]
            sets = self.search.queries.take(np.repeat(np.arange(batch.start, batch.stop), sizes))
            exact = self.relevance.pairs(sets, np.concatenate(candidates), self.pooling)
            for i, values in enumerate(np.split(exact, np.cumsum(sizes)[:-1])):
                # Ties by row, and NaN last.
                best = np.argsort(-values, kind="stable")[:width]
                rows[a + i], scores[a + i] = candidates[i][best], values[best]
            advance(len(batch))
        return rows, scores

    def _within_reach(self, queries: range) -> list[Rows]:
        """Return the ascending candidates of each query that can be among its best, by their approximate scores."""
        every, sets = self.search.candidates, self.search.queries.take(np.arange(queries.start, queries.stop))
        block = self.relevance.block(sets, every, self.pooling)
        block[np.isnan(block)] = -np.inf
        itself = self.search.exclude[queries.start : queries.stop, None] == every
        block[itself] = -np.inf
        best = np.partition(block, len(every) - self.search.width, axis=1)[:, len(every) - self.search.width]
        # Both the candidate and the k-th best may have an error of `block_error`.
        floor = best - 2 * self.relevance.block_error
        return [every[(row >= low) & ~excluded] for row, low, excluded in zip(block, floor, itself, strict=True)]


@dataclass(frozen=True, eq=False)
class SlabFinder(Finder, Generic[Slab]):
    """Finder with an inverted index of all candidates if it fits into memory, otherwise of one slab after another.

    A subclass implements `search_slab`, `build_slab` and `max_slab_rows`.
    """

    relevance: Any
    search: Search
    pooling: Pooling
    runtime: Runtime

    @override
    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of a range of queries in all slabs."""
        from relabel.topk.heaps import sort_heaps

        sets = self.search.queries.take(np.arange(queries.start, queries.stop))
        exclude = np.array(self.search.exclude[queries.start : queries.stop], np.int32)
        shape = (len(sets), self.search.width)
        # Empty slots have a score below any relevance, because relevance is at least 0.
        rows, scores = np.full(shape, EMPTY_SLOT, np.int32), np.full(shape, -1.0)
        if 0 not in shape:
            positions = self.relevance.set_positions(sets, self.pooling)
            for i, slab in enumerate(self._slabs()):

                def done(count: int, i: int = i) -> None:
                    # Each query is searched once per slab, so a slab counts as a fraction of a query.
                    advance(count * (i + 1) // self.count - count * i // self.count)

                self.search_slab(positions, exclude, slab, rows, scores, done)
            sort_heaps(rows, scores)
            self.fill_missing(positions, exclude, rows, scores)
        return rows, scores

    @abstractmethod
    def search_slab(
        self, sets: References, exclude: Rows, slab: Slab, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        """Merge the candidates of one slab into the heaps of all queries.

        `sets`: positions of the q queries in the encoded rows. `exclude`: (q,) int32; corpus row to exclude, or -1.
        `rows`, `scores`: (q, width) int32 and float64; heaps of the best candidates so far, updated in place. An unused
        slot has row `EMPTY_SLOT` and score -1. `done`: called with the number of queries finished since the last call.
        """

    @abstractmethod
    def build_slab(self, rows: Rows) -> Slab:
        """Build the inverted index of a slab of candidates, given by corpus rows."""

    @abstractmethod
    def max_slab_rows(self) -> int:
        """Return the maximum number of candidates per slab that fits into memory."""

    def fill_missing(self, sets: References, exclude: Rows, rows: Rows, scores: Scores) -> None:
        """Fill empty slots of sorted lists. Does nothing by default."""

    @cached_property
    def searchable(self) -> Rows:
        """Candidates to search."""
        return np.array(self.search.candidates, np.int32)

    @cached_property
    def count(self) -> int:
        """Number of slabs."""
        return max(1, -(-len(self.searchable) // max(_SMALLEST, self.max_slab_rows())))

    def _slabs(self) -> Iterator[Slab]:
        """Yield the slabs. If there is only one, it is cached."""
        if self.count == 1:
            yield self._single_slab
        else:
            # Of equal size, to avoid a slab with few candidates.
            edges = np.linspace(0, len(self.searchable), self.count + 1).astype(int).tolist()
            yield from (self.build_slab(self.searchable[lo:hi].copy()) for lo, hi in pairwise(edges))

    @cached_property
    def _single_slab(self) -> Slab:
        """Slab of all candidates."""
        return self.build_slab(self.searchable)
