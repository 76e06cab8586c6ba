"""Exact neighbours by word mover's distance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from relabel.corpus import References
from relabel.neighbours.base import Finder, Rows, Scores, Search
from relabel.runtime import Runtime
from relabel.sources.base import Pooling
from relabel.sources.ngrams.threads import share
from relabel.store.units import Advance
from relabel.store.work import Work

if TYPE_CHECKING:
    from relabel.sources.word_movers.relevance import WmdRelevance
    from relabel.sources.word_movers.search import Candidates

_TOGETHER = 32  # queries a thread takes at once
_LINES = 64  # lines of the table that a thread works out at once


@dataclass(frozen=True, eq=False)
class WmdFinder(Finder):
    """Neighbours of reference sets. See Finder, and `search` for how.

    Attributes
    ----------
    relevance : WmdRelevance
    search : Search
    pooling : Pooling
    runtime : Runtime
        Threads and memory: half of it holds distances between words, as many as go in, the most frequent first.
    """

    relevance: WmdRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime

    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """See Finder.find; `work` is not needed."""
        from relabel.sources.word_movers.search import Scratch, search
        from relabel.sources.word_movers.sets import CODES

        sets = self.search.queries.take(np.arange(queries.start, queries.stop))
        if self.pooling == "paired":
            sets = References.single(sets.rows[sets.indptr[:-1]])
        members, rows = self.relevance.places(sets.rows), self.search.candidates
        exclude = self._numbers(self.search.exclude[queries.start : queries.stop])
        shape = (len(sets), self.search.width)
        scores, chosen = np.empty(shape), np.empty(shape, np.int64)
        if 0 in shape:
            advance(len(sets))
            return np.empty(shape, np.int32), scores
        bags, candidates, code = self.relevance.bags, self._candidates, CODES[self.pooling]
        sizes = np.diff(bags.indptr)[members]

        def some(lo: int, hi: int) -> None:
            a, b = sets.indptr[lo], sets.indptr[hi]
            words = np.add.reduceat(sizes[a:b], sets.indptr[lo:hi] - a).max()
            references = int(np.diff(sets.indptr[lo : hi + 1]).max())
            scratch = Scratch.of(bags, candidates, references, int(words), self._rare(members[a:b]))
            search(
                sets.indptr[lo : hi + 1] - a,
                members[a:b],
                exclude[lo:hi],
                bags,
                self.relevance.ground.vectors,
                candidates,
                code,
                self.relevance.reach,
                scratch,
                scores[lo:hi],
                chosen[lo:hi],
            )

        share(some, len(sets), self.runtime.threads, _TOGETHER, advance)
        return rows[chosen], scores

    @cached_property
    def _candidates(self) -> Candidates:
        """The candidates, and the table of distances."""
        from relabel.sources.word_movers.search import Candidates, fill_table

        bags, vectors = self.relevance.bags, self.relevance.ground.vectors
        places = self.relevance.places(self.search.candidates)
        sizes = np.diff(bags.indptr)[places]
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        entries = np.arange(indptr[-1]) + np.repeat(bags.indptr[places] - indptr[:-1], sizes)
        distinct, words = np.unique(bags.words[entries], return_inverse=True)
        columns = distinct.astype(np.int32)
        asked = self._words(self.relevance.places(self.search.queries.rows))
        order = np.argsort(-np.bincount(asked, minlength=len(vectors)), kind="stable")
        fit = self.runtime.memory // 2 // (8 * max(1, len(columns)))
        often: Rows = order[: min(fit, len(np.unique(asked)))].astype(np.int32)
        line = np.full(len(vectors), -1, np.int32)
        line[often] = np.arange(len(often), dtype=np.int32)
        table = np.empty((len(often), len(columns)))
        share(
            lambda lo, hi: fill_table(vectors, often[lo:hi], columns, table[lo:hi]),
            len(often),
            self.runtime.threads,
            _LINES,
        )
        weights = bags.counts[entries] / np.repeat(np.maximum(bags.totals[places], 1), sizes)
        return Candidates(places, indptr, words.astype(np.int32), weights, columns, line, table)

    def _words(self, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Rows:
        """Words of some bags, end to end."""
        bags = self.relevance.bags
        sizes = np.diff(bags.indptr)[places]
        starts = np.cumsum(sizes) - sizes
        found: Rows = bags.words[np.arange(sizes.sum()) + np.repeat(bags.indptr[places] - starts, sizes)]
        return found

    def _rare(self, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
        """How many words of some bags are not in the table."""
        return int((self._candidates.line[self._words(places)] < 0).sum())

    def _numbers(self, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Number of each row among the candidates; -1 where it is none."""
        candidates = self.search.candidates
        at = np.minimum(np.searchsorted(candidates, rows), len(candidates) - 1)
        return np.where(candidates[at] == rows, at, -1).astype(np.int64)
