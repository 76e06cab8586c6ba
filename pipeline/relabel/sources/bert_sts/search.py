"""Exact neighbours of bert_sts, for which each pair that passes the gate is refined once.

All other pairs have the relevance that the label defines. With `below: zero`, all candidates that do not pass tie at 0
and are ordered by row. With `below: gate`, the best of them are found by the gate's vectors. The cost is that of the
pairs that pass; it is logged before the search starts.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.runtime import Advance, Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.sources.bert_sts.pair_table import DistinctCaptions, PairTable
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import pool
from relabel.store.workdir import Step, Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.relevance import BertStsRelevance

I8 = NDArray[np.int64]
_QUERIES = 1 << 13  # queries whose refined pairs are read at once


class GatedFinder(Finder):
    """Finder of the neighbours of reference sets by bert_sts."""

    def __init__(self, relevance: BertStsRelevance, search: Search, pooling: Pooling, runtime: Runtime) -> None:
        self.relevance, self.search, self.pooling, self.runtime = relevance, search, pooling, runtime

    @override
    def build(self, work: Work) -> Step | None:
        """Return the step that makes the table of refined pairs."""
        return self._pair_table.step(work) if len(self._pair_table.owners) else None

    @override
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of some queries from the table of refined pairs."""
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for a in range(0, len(queries), _QUERIES):
            step = range(queries.start + a, min(queries.start + a + _QUERIES, queries.stop))
            captions = [self._query_captions(q) for q in step]
            distinct = np.unique(np.concatenate(captions))
            query, other, refined = (
                self._pair_table.scores(work, distinct[distinct >= 0]) if len(self._pair_table.owners) else _NO_PAIRS
            )
            for i, references in enumerate(captions):
                exclude = int(self.search.exclude[step[i]])
                # A failed reference makes every score NaN, so the first candidates fill the list.
                if (references < 0).any():
                    best = self.search.candidates[: shape[1] + 1]
                    best, score = best[best != exclude][: shape[1]], np.full(shape[1], np.nan)
                else:
                    cuts = [slice(*np.searchsorted(query, [c, c + 1])) for c in references]
                    best, score = self._best(references, [(other[c], refined[c]) for c in cuts], exclude)
                rows[a + i], scores[a + i] = best, score
            advance(len(step))
        return rows, scores

    def _query_captions(self, query: int) -> I8:
        """Return the distinct captions of the references of a query that count; -1 for a failed row."""
        rows = self.search.queries[query]
        return self._captions.numbers(rows[:1] if self.pooling == "paired" else rows)

    def _best(self, references: I8, refined: list[tuple[I8, Scores]], exclude: int) -> tuple[Rows, Scores]:
        """Find the best candidates of one query.

        `references`: (R,) int64; distinct captions of the query's references. `refined`: list of (others, scores); for
        each reference, the distinct captions that pass with it and their refined scores. `exclude`: corpus row that is
        no neighbour; -1 for none.
        """
        width = self.search.width
        captions = np.unique(np.concatenate([self._same_text(references), *(other for other, _ in refined)]))
        captions = captions[np.isin(captions, self._searched, assume_unique=True)]
        if self.relevance.gate.below == "gate" and self.relevance.coarse is not None:
            captions = np.union1d(
                captions, self._within_reach(references, captions, self._matrix(references, captions, refined))
            )
        value = self._pool(self._matrix(references, captions, refined))
        sizes = np.diff(self._members[0])[np.searchsorted(self._searched, captions)]
        rows = self._rows_of(captions)
        score = np.repeat(value, sizes)
        # Candidates with score 0 tie with all that were never scored, and are ordered by row below.
        positive = (rows != exclude) & (score > 0)
        rows, score = rows[positive], score[positive]
        order = np.lexsort((rows, -score))[:width]
        rows, score = rows[order], score[order]
        if len(rows) == width:
            return rows, score
        # Pad with zeros in row order; up to len(rows) + 1 of these candidates are already listed or excluded.
        zeros = self._encoded_candidates[: width + len(rows) + 1]
        zeros = zeros[(zeros != exclude) & ~np.isin(zeros, rows)][: width - len(rows)]
        rows, score = np.append(rows, zeros).astype(np.int32), np.append(score, np.zeros(len(zeros)))
        # Failed candidates come last, with NaN.
        failed = self._failed[self._failed != exclude][: width - len(rows)]
        return np.append(rows, failed).astype(np.int32), np.append(score, np.full(len(failed), np.nan))

    def _matrix(self, references: I8, captions: I8, refined: list[tuple[I8, Scores]]) -> Scores:
        """Score n distinct captions against each of R references, (n, R) float64, equal to `pairs`."""
        count, distinct, gate = len(references), self._captions, self.relevance.gate
        out = np.zeros((len(captions), count))
        for r, (reference, (other, score)) in enumerate(zip(references.tolist(), refined, strict=True)):
            if gate.below == "gate" and self.relevance.coarse is not None:
                coarse = distinct.coarse(np.full(len(captions), reference), captions)
                out[:, r] = gate.rest(coarse, len(captions))
            position = np.searchsorted(captions, other)
            present = np.flatnonzero(
                (position < len(captions)) & (captions[np.minimum(position, max(0, len(captions) - 1))] == other)
            )
            out[position[present], r] = score[present]
            out[distinct.text[captions] == distinct.text[reference], r] = 1.0
        return out

    def _pool(self, matrix: Scores) -> Scores:
        """Pool (n, R) scores as `pairs` does."""
        count, each = matrix.shape
        return pool(matrix.reshape(-1), np.arange(count + 1, dtype=np.int64) * each, self.pooling)

    def _within_reach(self, references: I8, captions: I8, refined_scores: Scores) -> I8:
        """Return the distinct captions that can be among the best, by the gate's scores of unrefined pairs."""
        distinct, searched = self._captions, self._searched
        scores = np.clip(self._vectors @ distinct.vectors(references).astype(np.float32).T, 0, 1).astype(np.float64)
        # Refined scores are exact and replace the gate's.
        scores[np.searchsorted(searched, captions)] = refined_scores
        value = self._pool(scores)
        # The excluded row may be among the best.
        length = self.search.width + 1
        if length >= len(value):
            return searched
        # Every approximate score is within `slack` of the exact one, so twice the slack separates the two sides.
        bound = np.partition(value, len(value) - length)[len(value) - length] - 2 * distinct.slack
        within: I8 = searched[value >= bound]
        return within

    def _rows_of(self, captions: I8) -> Rows:
        """Return the candidate rows of distinct captions, one caption after another."""
        indptr, rows = self._members
        position = np.searchsorted(self._searched, captions)
        sizes = np.diff(indptr)[position]
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        candidates: Rows = rows[np.repeat(indptr[position], sizes) + offsets]
        return candidates

    def _same_text(self, references: I8) -> I8:
        """Return the distinct captions with the same texts."""
        order, sorted_text = self._by_text
        text = self._captions.text[references]
        first, last = np.searchsorted(sorted_text, text, "left"), np.searchsorted(sorted_text, text, "right")
        return np.concatenate([order[a:b] for a, b in zip(first, last, strict=True)])

    @cached_property
    def _by_text(self) -> tuple[I8, Rows]:
        """Order of the distinct captions by text, and the texts in that order."""
        order = np.argsort(self._captions.text, kind="stable")
        return order, self._captions.text[order]

    @cached_property
    def _captions(self) -> DistinctCaptions:
        """Distinct captions of the encoding."""
        return DistinctCaptions.of(self.relevance)

    @cached_property
    def _candidates(self) -> I8:
        """Distinct caption of each candidate; -1 for a failed one."""
        return self._captions.numbers(self.search.candidates)

    @cached_property
    def _searched(self) -> I8:
        """Distinct captions that have candidates, ascending."""
        return np.unique(self._candidates[self._candidates >= 0])

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        """Gate's vectors of the captions in `_searched`."""
        return self._captions.vectors(self._searched)

    @cached_property
    def _members(self) -> tuple[I8, Rows]:
        """Candidate rows of each caption in `_searched`, in CSR form, ascending within a caption."""
        encoded = self._candidates >= 0
        order = np.argsort(self._candidates[encoded], kind="stable")
        sizes = np.bincount(np.searchsorted(self._searched, self._candidates[encoded]), minlength=len(self._searched))
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), self.search.candidates[encoded][order]

    @cached_property
    def _encoded_candidates(self) -> Rows:
        """Candidates that have not failed."""
        return self.search.candidates[self._candidates >= 0]

    @cached_property
    def _failed(self) -> Rows:
        """Candidates that have failed."""
        return self.search.candidates[self._candidates < 0]

    @cached_property
    def _pair_table(self) -> PairTable:
        """Table of the refined pairs of all queries."""
        queries = np.unique(np.concatenate([self._query_captions(q) for q in range(len(self.search.queries))]))
        return PairTable(self._captions, queries[queries >= 0], self._searched)


_NO_PAIRS: tuple[I8, I8, Scores] = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
