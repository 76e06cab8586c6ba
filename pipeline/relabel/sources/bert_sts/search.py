"""Neighbours behind a gate: what passes is refined, once a pair, and what stays below has the relevance the label says.

So the lists are exact for the label as it is defined. With `below: zero` all candidates that do not pass tie at 0 and
come by row; with `below: gate` the best of them are found by the gate. The cost is that of the pairs that pass, which
is said before it starts.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.sources.bert_sts.gate import Classes
from relabel.sources.bert_sts.pair_table import Refining
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import pool
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.relevance import BertStsRelevance

I8 = NDArray[np.int64]
_TOGETHER = 1 << 13  # queries whose refined pairs are read together


class GatedFinder(Finder):
    """Neighbours of reference sets by bert_sts. See Finder.

    Parameters
    ----------
    relevance : BertStsRelevance
    search : Search
    pooling : "paired", "max" or "mean"
    runtime : Runtime
    """

    def __init__(self, relevance: BertStsRelevance, search: Search, pooling: Pooling, runtime: Runtime) -> None:
        self.relevance, self.search, self.pooling, self.runtime = relevance, search, pooling, runtime

    @override
    def preliminary(self, work: Work) -> TaskGroup | None:
        """Return the group that makes the table of refined pairs."""
        return self._refining.task_group(work) if len(self._refining.owners) else None

    @override
    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        self._refining.make(work, task, advance)

    @override
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for a in range(0, len(queries), _TOGETHER):
            some = range(queries.start + a, min(queries.start + a + _TOGETHER, queries.stop))
            classes = [self._asks(q) for q in some]
            every = np.unique(np.concatenate(classes))
            asks, other, refined = (
                self._refining.scores(work, every[every >= 0]) if len(self._refining.owners) else _NONE
            )
            for i, mine in enumerate(classes):
                exclude = int(self.search.exclude[some[i]])
                if (mine < 0).any():
                    found = self.search.candidates[: shape[1] + 1]
                    found, score = found[found != exclude][: shape[1]], np.full(shape[1], np.nan)
                else:
                    cuts = [slice(*np.searchsorted(asks, [c, c + 1])) for c in mine]
                    found, score = self._best(mine, [(other[c], refined[c]) for c in cuts], exclude)
                rows[a + i], scores[a + i] = found, score
            advance(len(some))
        return rows, scores

    def _asks(self, query: int) -> I8:
        """Classes of what counts of a query; -1 for a failed row."""
        rows = self.search.queries[query]
        return self._classes.at(rows[:1] if self.pooling == "paired" else rows)

    def _best(self, asks: I8, refined: list[tuple[I8, Scores]], exclude: int) -> tuple[Rows, Scores]:
        """Find the best candidates of one query; `refined` are each reference's partners that pass."""
        width = self.search.width
        known = np.unique(np.concatenate([self._same(asks), *(other for other, _ in refined)]))
        known = known[np.isin(known, self._asked, assume_unique=True)]
        if self.relevance.gate.below == "gate" and self.relevance.coarse is not None:
            known = np.union1d(known, self._near(asks, known, self._matrix(asks, known, refined)))
        value = self._pooled(self._matrix(asks, known, refined))
        sizes = np.diff(self._members[0])[np.searchsorted(self._asked, known)]
        rows = self._rows_of(known)
        score = np.repeat(value, sizes)
        kept = (rows != exclude) & (score > 0)  # what is 0 stands by row, among all that is
        rows, score = rows[kept], score[kept]
        order = np.lexsort((rows, -score))[:width]
        rows, score = rows[order], score[order]
        if len(rows) == width:
            return rows, score
        rest = self._fine[: width + len(rows) + 1]  # of which that many may be left out
        rest = rest[(rest != exclude) & ~np.isin(rest, rows)][: width - len(rows)]
        rows, score = np.append(rows, rest).astype(np.int32), np.append(score, np.zeros(len(rest)))
        lost = self._failed[self._failed != exclude][: width - len(rows)]
        return np.append(rows, lost).astype(np.int32), np.append(score, np.full(len(lost), np.nan))

    def _matrix(self, asks: I8, known: I8, refined: list[tuple[I8, Scores]]) -> Scores:
        """Score (n) candidate classes against each reference, (n, R) float64, as `pairs` does."""
        count, classes, gate = len(asks), self._classes, self.relevance.gate
        out = np.zeros((len(known), count))
        for r, (one, (other, score)) in enumerate(zip(asks.tolist(), refined, strict=True)):
            if gate.below == "gate" and self.relevance.coarse is not None:
                coarse = classes.coarse(np.full(len(known), one), known)
                out[:, r] = gate.rest(coarse, len(known))
            at = np.searchsorted(known, other)
            there = np.flatnonzero((at < len(known)) & (known[np.minimum(at, max(0, len(known) - 1))] == other))
            out[at[there], r] = score[there]
            out[classes.text[known] == classes.text[one], r] = 1.0
        return out

    def _pooled(self, matrix: Scores) -> Scores:
        """Pool (n, R) scores as `pairs` does."""
        count, each = matrix.shape
        return pool(matrix.reshape(-1), np.arange(count + 1, dtype=np.int64) * each, self.pooling)

    def _near(self, asks: I8, known: I8, exact: Scores) -> I8:
        """Classes that can be among the best by the gate where nothing is refined."""
        classes, asked = self._classes, self._asked
        rough = np.clip(self._vectors @ classes.near(asks).astype(np.float32).T, 0, 1).astype(np.float64)
        rough[np.searchsorted(asked, known)] = exact
        value = self._pooled(rough)
        most = self.search.width + 1  # itself may be one
        if most >= len(value):
            return asked
        least = np.partition(value, len(value) - most)[len(value) - most] - 2 * classes.slack
        near: I8 = asked[value >= least]
        return near

    def _rows_of(self, known: I8) -> Rows:
        """Candidate rows of some classes, class by class."""
        indptr, rows = self._members
        at = np.searchsorted(self._asked, known)
        sizes = np.diff(indptr)[at]
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found: Rows = rows[np.repeat(indptr[at], sizes) + offsets]
        return found

    def _same(self, asks: I8) -> I8:
        """Classes of the same texts."""
        order, sorted_text = self._by_text
        text = self._classes.text[asks]
        lo, hi = np.searchsorted(sorted_text, text, "left"), np.searchsorted(sorted_text, text, "right")
        return np.concatenate([order[a:b] for a, b in zip(lo, hi, strict=True)])

    @cached_property
    def _by_text(self) -> tuple[I8, Rows]:
        order = np.argsort(self._classes.text, kind="stable")
        return order, self._classes.text[order]

    @cached_property
    def _classes(self) -> Classes:
        return Classes.find(self.relevance)

    @cached_property
    def _candidates(self) -> I8:
        """Class of each candidate; -1 for a failed one."""
        return self._classes.at(self.search.candidates)

    @cached_property
    def _asked(self) -> I8:
        """Classes that have candidates, ascending."""
        return np.unique(self._candidates[self._candidates >= 0])

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        return self._classes.near(self._asked)

    @cached_property
    def _members(self) -> tuple[I8, Rows]:
        """Candidate rows of each of `_asked`, ascending within a class."""
        fine = self._candidates >= 0
        order = np.argsort(self._candidates[fine], kind="stable")
        sizes = np.bincount(np.searchsorted(self._asked, self._candidates[fine]), minlength=len(self._asked))
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), self.search.candidates[fine][order]

    @cached_property
    def _fine(self) -> Rows:
        return self.search.candidates[self._candidates >= 0]

    @cached_property
    def _failed(self) -> Rows:
        return self.search.candidates[self._candidates < 0]

    @cached_property
    def _refining(self) -> Refining:
        asking = np.unique(np.concatenate([self._asks(q) for q in range(len(self.search.queries))]))
        return Refining(self._classes, asking[asking >= 0], self._asked)


_NONE: tuple[I8, I8, Scores] = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
