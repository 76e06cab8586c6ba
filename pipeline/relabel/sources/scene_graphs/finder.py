"""Exact neighbours by SPICE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from relabel.corpus import References
from relabel.neighbours.base import Rows, Scores
from relabel.sources.ngrams.slabs import SlabFinder
from relabel.sources.ngrams.threads import share
from relabel.sources.scene_graphs.listing import Holders, Listing, holders_of, listing_of
from relabel.sources.scene_graphs.search import Counts, search
from relabel.store.units import Advance

if TYPE_CHECKING:
    from relabel.sources.scene_graphs.relevance import SceneGraphRelevance

_TOGETHER = 128  # queries a piece


@dataclass(frozen=True, eq=False)
class SceneGraphFinder(SlabFinder[Holders]):
    """Neighbours of reference sets by SPICE.

    A failed row is nobody's neighbour while there are others (it comes last, with score NaN), and a set that counts one
    has the first candidates with score NaN.

    Attributes
    ----------
    relevance, search, pooling, runtime
        See SlabFinder.
    """

    relevance: SceneGraphRelevance

    def improve(
        self, sets: References, exclude: Rows, slab: Holders, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        """See SlabFinder.improve."""
        relevance, how = self.relevance, self.relevance.how(self.pooling)
        scenes, most = relevance.scenes, relevance.largest(sets, how)

        def work(lo: int, hi: int) -> None:
            counts = Counts.room(len(slab.rows), len(self._listing.concepts))
            indptr, best = sets.indptr[lo : hi + 1], (rows[lo:hi], scores[lo:hi])
            rows_of, words, listing, out = scenes.rows, scenes.words, self._listing, exclude[lo:hi]
            with relevance.room(most) as room:
                search(indptr, sets.rows, how, out, rows_of, words, listing, slab, room, counts, *best)

        share(work, len(sets), self.runtime.threads, _TOGETHER, done)

    def complete(self, sets: References, exclude: Rows, rows: Rows, scores: Scores) -> None:
        """Give sets that count a failed row, and lists that lack others, what stands for no neighbour."""
        failed = np.logical_or.reduceat(self.relevance.broken[sets.rows], sets.indptr[:-1])
        for i in np.flatnonzero(failed | (scores < 0).any(axis=1)):
            count = 0 if failed[i] else int((scores[i] >= 0).sum())
            rest = self.search.candidates[: self.search.width + 1] if count == 0 else self._failed
            rows[i, count:] = rest[rest != exclude[i]][: self.search.width - count]
            scores[i, count:] = np.nan

    def slab(self, rows: Rows) -> Holders:
        """See SlabFinder.slab."""
        return holders_of(self.relevance.scenes.graphs, self._listing, self.relevance.at(rows), rows)

    def fitting(self) -> int:
        """See SlabFinder.fitting; a slab is its index and each thread's counts."""
        graphs, tuples = self.relevance.scenes.graphs, len(self._listing.concepts)
        each = 12 * len(graphs.concepts) / max(1, len(graphs.start) - 1) + 16 + 18 * self.runtime.threads
        left = self.runtime.memory - tuples * (8 + 4 * self.runtime.threads)
        return int(left / each)

    @cached_property
    def _listing(self) -> Listing:
        return listing_of(self.relevance.scenes.graphs, self.relevance.scenes.concepts)

    @cached_property
    def usable(self) -> Rows:
        """Candidates that have not failed."""
        candidates = np.array(self.search.candidates, np.int32)
        return candidates[~self.relevance.broken[self.relevance.at(candidates)]]

    @cached_property
    def _failed(self) -> Rows:
        """Candidates that have failed."""
        candidates = np.array(self.search.candidates, np.int32)
        return candidates[self.relevance.broken[self.relevance.at(candidates)]]
