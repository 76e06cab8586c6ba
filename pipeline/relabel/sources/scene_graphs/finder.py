"""Exact neighbours by SPICE: candidates inverted slab by slab, the k best of each query carried on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from relabel.corpus import References
from relabel.neighbours.base import Finder, Rows, Scores, Search
from relabel.runtime import Runtime
from relabel.sources.base import Pooling
from relabel.sources.ngrams.pruned import settle
from relabel.sources.ngrams.threads import share
from relabel.sources.scene_graphs.listing import Holders, Listing, holders_of, listing_of
from relabel.sources.scene_graphs.search import Counts, search
from relabel.store.units import Advance
from relabel.store.work import Work

if TYPE_CHECKING:
    from relabel.sources.scene_graphs.relevance import SceneGraphRelevance

_TOGETHER = 128  # queries a piece
_SMALLEST = 4096  # candidates a slab, however little memory there is
_EMPTY = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class SceneGraphFinder(Finder):
    """Neighbours of reference sets by SPICE. See Finder.

    All candidates are inverted once if that fits into memory; else each call inverts one slab after the other. A failed
    row is nobody's neighbour while there are others (it comes last, with score NaN), and a set that counts one has the
    first candidates with score NaN.

    Attributes
    ----------
    relevance : SceneGraphRelevance
    search : Search
    pooling : Pooling
    runtime : Runtime
        Threads and memory.
    """

    relevance: SceneGraphRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime

    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """See Finder.find; `work` is not needed."""
        sets = self.search.queries.take(np.arange(queries.start, queries.stop))
        exclude = np.array(self.search.exclude[queries.start : queries.stop], np.int32)
        shape = (len(sets), self.search.width)
        rows, scores = np.full(shape, _EMPTY, np.int32), np.full(shape, -1.0)
        if 0 not in shape:
            places = self.relevance.places(sets, self.pooling)
            for i, holders in enumerate(self._slabs()):

                def done(count: int, i: int = i) -> None:
                    advance(count * (i + 1) // self._count - count * i // self._count)

                self._improve(places, exclude, holders, rows, scores, done)
            settle(rows, scores)
            self._put_failed(places, exclude, rows, scores)
        return rows, scores

    def _improve(
        self, sets: References, exclude: Rows, holders: Holders, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        """Bring some candidates into the heaps of all queries."""
        relevance, how = self.relevance, self.relevance.how(self.pooling)
        scenes, most = relevance.scenes, relevance.largest(sets, how)

        def work(lo: int, hi: int) -> None:
            counts = Counts.room(len(holders.rows), len(self._listing.concepts))
            indptr, best = sets.indptr[lo : hi + 1], (rows[lo:hi], scores[lo:hi])
            rows_of, words, listing, out = scenes.rows, scenes.words, self._listing, exclude[lo:hi]
            with relevance.room(most) as room:
                search(indptr, sets.rows, how, out, rows_of, words, listing, holders, room, counts, *best)

        share(work, len(sets), self.runtime.threads, _TOGETHER, done)

    def _put_failed(self, sets: References, exclude: Rows, rows: Rows, scores: Scores) -> None:
        """Give sets that count a failed row, and lists that lack others, what stands for no neighbour."""
        failed = np.logical_or.reduceat(self.relevance.broken[sets.rows], sets.indptr[:-1])
        for i in np.flatnonzero(failed | (scores < 0).any(axis=1)):
            count = 0 if failed[i] else int((scores[i] >= 0).sum())
            rest = self.search.candidates[: self.search.width + 1] if count == 0 else self._failed
            rows[i, count:] = rest[rest != exclude[i]][: self.search.width - count]
            scores[i, count:] = np.nan

    def _slabs(self) -> Iterator[Holders]:
        if self._count == 1:
            yield self._whole
        else:
            edges = np.linspace(0, len(self._usable), self._count + 1).astype(int).tolist()
            yield from (self._holders(lo, hi) for lo, hi in pairwise(edges))

    @cached_property
    def _count(self) -> int:
        """Slabs that the candidates are cut into, so that one slab's index and counts fit into memory."""
        graphs, tuples = self.relevance.scenes.graphs, len(self._listing.concepts)
        each = 12 * len(graphs.concepts) / max(1, len(graphs.start) - 1) + 16 + 18 * self.runtime.threads
        left = self.runtime.memory - tuples * (8 + 4 * self.runtime.threads)
        return max(1, -(-len(self._usable) // max(_SMALLEST, int(left / each))))

    @cached_property
    def _listing(self) -> Listing:
        return listing_of(self.relevance.scenes.graphs, self.relevance.scenes.concepts)

    @cached_property
    def _usable(self) -> Rows:
        """Candidates that have not failed."""
        candidates = np.array(self.search.candidates, np.int32)
        return candidates[~self.relevance.broken[self.relevance.at(candidates)]]

    @cached_property
    def _failed(self) -> Rows:
        """Candidates that have failed."""
        candidates = np.array(self.search.candidates, np.int32)
        return candidates[self.relevance.broken[self.relevance.at(candidates)]]

    @cached_property
    def _whole(self) -> Holders:
        return self._holders(0, len(self._usable))

    def _holders(self, lo: int, hi: int) -> Holders:
        rows = self._usable[lo:hi].copy()
        return holders_of(self.relevance.scenes.graphs, self._listing, self.relevance.at(rows), rows)
