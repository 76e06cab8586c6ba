"""Exact neighbours by CIDEr: candidates are screened before they are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relabel.corpus import References
from relabel.neighbours.base import Rows, Scores
from relabel.sources.ngrams.slabs import EMPTY, SlabFinder
from relabel.sources.ngrams.structures import Merge
from relabel.sources.ngrams.threads import share
from relabel.store.units import Advance

if TYPE_CHECKING:
    from relabel.sources.ngrams.relevance import CiderRelevance
    from relabel.sources.ngrams.screen import Screen

LEAVE_OUT = 0.4
_TOGETHER = 128  # queries a piece


@dataclass(frozen=True, eq=False)
class CiderFinder(SlabFinder["Screen"]):
    """Neighbours of reference sets by CIDEr or CIDEr-D.

    Pooling `max` is searched reference by reference: the best of a set are among the best of its references.

    Attributes
    ----------
    relevance, search, pooling, runtime
        See SlabFinder.
    leave_out : float
        `share` of `pruned.search`, from 0 to below 1: changes nothing but the time.
    """

    relevance: CiderRelevance
    leave_out: float = LEAVE_OUT

    def improve(self, sets: References, exclude: Rows, slab: Screen, rows: Rows, scores: Scores, done: Advance) -> None:
        """See SlabFinder.improve."""
        from relabel.sources.ngrams.pruned import Sums, Terms, join, search

        features, weighting = self.relevance.features, self.relevance.weighting
        single = self.pooling == "max"
        sizes = np.diff(features.indptr)[sets.rows]
        largest = int(sizes.max() if single else np.add.reduceat(sizes, sets.indptr[:-1]).max())
        references = 1 if single else int(np.diff(sets.indptr).max())

        def work(lo: int, hi: int) -> None:
            merge, terms, sums = Merge.room(references), Terms.room(largest), Sums.room(len(slab.rows), weighting)
            indptr, out, left_out = sets.indptr[lo : hi + 1], exclude[lo:hi], self.leave_out
            best = rows[lo:hi], scores[lo:hi]
            if single:
                out = np.repeat(out, np.diff(indptr))
                best = np.full((len(out), rows.shape[1]), EMPTY, np.int32), np.full((len(out), rows.shape[1]), -1.0)
                indptr = np.arange(indptr[0], indptr[-1] + 1)
            search(indptr, sets.rows, out, features, slab, weighting, left_out, merge, terms, sums, *best)
            if single:
                join(sets.indptr[lo : hi + 1], *best, rows[lo:hi], scores[lo:hi])

        share(work, len(sets), self.runtime.threads, _TOGETHER, done)

    def slab(self, rows: Rows) -> Screen:
        """See SlabFinder.slab."""
        from relabel.sources.ngrams.screen import screen_of

        places = self.relevance.places(References.single(rows), "refs").rows
        return screen_of(self.relevance.features, self.relevance.weighting, places, rows)

    def fitting(self) -> int:
        """See SlabFinder.fitting; a slab is its screen and each thread's sums."""
        from relabel.sources.ngrams.screen import LONGEST

        features, grams = self.relevance.features, int(self.relevance.weighting.starts[-1])
        postings = len(features.ids) / max(1, len(features.bigrams))
        each = 4 * postings + 4 * features.inverse.shape[1] + 12 + 11 * self.runtime.threads
        return min(int((self.runtime.memory - 12 * grams) / each), LONGEST)
