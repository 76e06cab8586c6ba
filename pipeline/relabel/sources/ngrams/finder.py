"""Exact neighbours by CIDEr: candidates screened slab by slab, the k best of each query carried on."""

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
from relabel.sources.ngrams.structures import Merge
from relabel.sources.ngrams.threads import share
from relabel.store.units import Advance
from relabel.store.work import Work

if TYPE_CHECKING:
    from relabel.sources.ngrams.relevance import CiderRelevance
    from relabel.sources.ngrams.screen import Screen

LEAVE_OUT = 0.4
_TOGETHER = 128  # queries a piece
_SMALLEST = 4096  # candidates a slab, however little memory there is
_EMPTY = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class CiderFinder(Finder):
    """Neighbours of reference sets by CIDEr or CIDEr-D. See Finder.

    All candidates are inverted once if that fits into memory; else each call inverts one slab after the other.

    Attributes
    ----------
    relevance : CiderRelevance
    search : Search
    pooling : Pooling
        `max` is searched reference by reference: the best of a set are among the best of its references.
    runtime : Runtime
        Threads and memory.
    leave_out : float
        `share` of `pruned.search`, from 0 to below 1: changes nothing but the time.
    """

    relevance: CiderRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime
    leave_out: float = LEAVE_OUT

    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """See Finder.find; `work` is not needed."""
        from relabel.sources.ngrams.pruned import settle

        sets = self.search.queries.take(np.arange(queries.start, queries.stop))
        exclude = np.array(self.search.exclude[queries.start : queries.stop], np.int32)
        shape = (len(sets), self.search.width)
        rows, scores = np.full(shape, _EMPTY, np.int32), np.full(shape, -1.0)
        if 0 not in shape:
            places = self.relevance.places(sets, self.pooling)
            for i, screen in enumerate(self._screens()):

                def done(count: int, i: int = i) -> None:
                    advance(count * (i + 1) // self._slabs - count * i // self._slabs)

                self._improve(places, exclude, screen, rows, scores, done)
            settle(rows, scores)
        return rows, scores

    def _improve(
        self, sets: References, exclude: Rows, screen: Screen, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        """Bring the candidates of a screen into the heaps of all queries."""
        from relabel.sources.ngrams.pruned import Sums, Terms, join, search

        features, weighting = self.relevance.features, self.relevance.weighting
        single = self.pooling == "max"
        sizes = np.diff(features.indptr)[sets.rows]
        largest = int(sizes.max() if single else np.add.reduceat(sizes, sets.indptr[:-1]).max())
        references = 1 if single else int(np.diff(sets.indptr).max())

        def work(lo: int, hi: int) -> None:
            merge, terms, sums = Merge.room(references), Terms.room(largest), Sums.room(len(screen.rows), weighting)
            indptr, out, left_out = sets.indptr[lo : hi + 1], exclude[lo:hi], self.leave_out
            best = rows[lo:hi], scores[lo:hi]
            if single:
                out = np.repeat(out, np.diff(indptr))
                best = np.full((len(out), rows.shape[1]), _EMPTY, np.int32), np.full((len(out), rows.shape[1]), -1.0)
                indptr = np.arange(indptr[0], indptr[-1] + 1)
            search(indptr, sets.rows, out, features, screen, weighting, left_out, merge, terms, sums, *best)
            if single:
                join(sets.indptr[lo : hi + 1], *best, rows[lo:hi], scores[lo:hi])

        share(work, len(sets), self.runtime.threads, _TOGETHER, done)

    def _screens(self) -> Iterator[Screen]:
        if self._slabs == 1:
            yield self._whole
        else:
            edges = np.linspace(0, len(self.search.candidates), self._slabs + 1).astype(int).tolist()
            yield from (self._screen(lo, hi) for lo, hi in pairwise(edges))

    @cached_property
    def _slabs(self) -> int:
        """Slabs that the candidates are cut into, so that one slab's screen and sums fit into memory."""
        from relabel.sources.ngrams.screen import LONGEST

        features, grams = self.relevance.features, int(self.relevance.weighting.starts[-1])
        postings = len(features.ids) / max(1, len(features.bigrams))
        each = 4 * postings + 4 * features.inverse.shape[1] + 12 + 11 * self.runtime.threads
        fit = min(max(_SMALLEST, int((self.runtime.memory - 12 * grams) / each)), LONGEST)
        return max(1, -(-len(self.search.candidates) // fit))

    @cached_property
    def _whole(self) -> Screen:
        return self._screen(0, len(self.search.candidates))

    def _screen(self, lo: int, hi: int) -> Screen:
        from relabel.sources.ngrams.screen import screen_of

        rows = np.array(self.search.candidates[lo:hi], np.int32)
        places = self.relevance.places(References.single(rows), "refs").rows
        return screen_of(self.relevance.features, self.relevance.weighting, places, rows)
