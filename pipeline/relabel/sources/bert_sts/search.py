"""Exact neighbours of bert_sts. Each pair of texts that passes the gate is refined once.

All other pairs have relevance 0 and are sorted by row. The refined pairs of all queries are in memory, 24 bytes each.
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_array
from typing_extensions import override

from relabel.core.numeric.csr import group
from relabel.core.runtime import Advance
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.bert_sts.pairs import Keys, TextPairs, rows_of
from relabel.sources.finder import Finder, Search
from relabel.store.workdir import Step, Work, table_task
from relabel_train.scoring.references import pool

_SAMPLE = 256  # number of query texts for the estimate
_PAIRS = 1 << 13  # approximate number of pairs per file: about one minute on one thread
_QUERIES, _SLAB = 1 << 10, 1 << 13  # maximum numbers of query and candidate texts per matrix product


class GatedFinder(Finder):
    """Finder of the neighbours of reference sets by bert_sts. Texts are identified by their first rows."""

    def __init__(self, relevance: TextPairs, search: Search, pooling: Pooling) -> None:
        self.relevance, self.search, self.pooling = relevance, search, pooling
        failed = np.isin(search.candidates, relevance.failed)
        encoded = search.candidates[~failed]
        self._last = np.append(encoded, search.candidates[failed])  # candidates without a positive score, in order
        texts = relevance.text_rows(encoded)
        self._texts = np.unique(texts)
        indptr, order = group(texts, relevance.rows.stop)
        self._captions = References(indptr, encoded[order])  # candidates with each text
        self._sets = relevance.compared(search.queries, pooling)
        self._queries = np.setdiff1d(self._sets.rows, relevance.failed)
        self._table: csr_array | None = None

    @override
    def build(self, work: Work) -> Step:
        """Return the step that refines the pairs, and log their estimated number."""
        self.relevance.runtime.progress.note(f"about {self._estimate:,} pairs to refine")
        tasks = [table_task(f, partial(self._refine, part), len(part), plain=True) for f, part in self._parts.items()]
        return Step("refined pairs", "texts", tasks)

    @override
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of a range of queries in the table of refined pairs."""
        if self._table is None:
            self._table = self._read(work)
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for i, query in enumerate(queries):
            rows[i], scores[i] = self._find_one(self._table, query)
            advance(1)
        return rows, scores

    def _find_one(self, table: csr_array, query: int) -> tuple[Rows, Scores]:
        """Find the neighbours of one query: rows and relevance, (width,) each."""
        width, exclude, references = self.search.width, self.search.exclude[query], self._sets[query]
        # With a failed reference, all scores are NaN, so return the first candidates.
        if np.isin(self.relevance.gate_sets(references, self.pooling).rows, self.relevance.failed).any():
            rows = self.search.candidates[: width + 1]
            return rows[rows != exclude][:width], np.full(width, np.nan)
        lines = [slice(*table.indptr[text : text + 2]) for text in references]
        refined = [(table.indices[line], table.data[line]) for line in lines]
        # Other texts have relevance 0.
        texts = np.unique(np.concatenate([references, *(text_rows for text_rows, _ in refined)]))
        score, captions = self._score(references, texts, refined), self._captions.take(texts)
        rows, score = captions.rows, np.repeat(score, np.diff(captions.indptr))
        positive = (rows != exclude) & (score > 0)
        rows, score = rows[positive], score[positive]
        order = np.lexsort((rows, -score))[:width]
        rows, score = rows[order], score[order]
        # Fill the list. At most len(rows) + 1 of these rows are already listed or excluded.
        rest = self._last[: width + len(rows) + 1]
        rest = rest[(rest != exclude) & ~np.isin(rest, rows)][: width - len(rows)]
        zeros = np.where(np.isin(rest, self.relevance.failed), np.nan, 0.0)
        return np.append(rows, rest), np.append(score, zeros)

    def _score(self, references: Rows, texts: Rows, refined: list[tuple[Rows, Scores]]) -> Scores:
        """Score n texts against R references, with pooling as in `pairs`: (n,) float64.

        `refined`: for each reference, the texts with refined scores, and these scores.
        """
        left, right = np.tile(references, len(texts)), np.repeat(texts, len(references))
        scores = self.relevance.gated(self.relevance.keys(left, right), self.pooling)[0]
        for r, (text_rows, score) in enumerate(refined):
            scores[np.searchsorted(texts, text_rows) * len(references) + r] = score
        return pool(scores, np.arange(len(texts) + 1) * len(references), self.pooling)

    def _read(self, work: Work) -> csr_array:
        """Read the refined pairs as a sparse matrix of scores by the first rows of both texts."""
        table = pa.concat_tables([pq.read_table(work.folder / file) for file in self._parts])
        (left, right), score = rows_of(table["key"].to_numpy()), table["score"].to_numpy()
        if self.relevance.params.symmetric:
            left, right, score = np.append(left, right), np.append(right, left), np.tile(score, 2)
        size = self.relevance.rows.stop
        return csr_array((score, (left, right)), shape=(size, size))

    def _refine(self, queries: Rows) -> pa.Table:
        """Refine the pairs of the given query texts."""
        keys = self._passing_pairs(queries)
        return pa.table({"key": keys, "score": self.relevance.refine(keys)})

    def _passing_pairs(self, queries: Rows) -> Keys:
        """Return the pairs of the given query texts and any candidate text that pass the gate."""
        passing = [np.empty(0, np.int64)]
        for a in range(0, len(self._texts), _SLAB):
            slab = self._texts[a : a + _SLAB]
            i, j = np.nonzero(self._may_pass(queries, slab))
            left, right = queries[i], slab[j]
            if self.relevance.params.symmetric:
                # If both texts are queries and candidates, keep one order, selected by the parity of the sum.
                twice = np.isin(right, self._queries) & np.isin(left, self._texts)
                mask = ~twice | ((left < right) == ((left + right) % 2 == 0))
                left, right = left[mask], right[mask]
            keys = self.relevance.keys(left, right)
            passing.append(keys[self.relevance.gated(keys, self.pooling)[1]])
        return np.concatenate(passing)

    def _may_pass(self, queries: Rows, texts: Rows) -> NDArray[np.bool_]:
        """Return a mask of the pairs that can pass the gate, by approximate scores: (q, n) bool."""
        coarse, threshold = self.relevance.coarse, self.relevance.threshold
        vectors = None if coarse is None else coarse.unit_vectors()
        if coarse is None or threshold is None or vectors is None:
            return np.ones((len(queries), len(texts)), bool)
        if self.relevance.params.images is not None:
            scores = coarse.block(self.relevance.gate_sets(queries, self.pooling), texts, self.pooling)
            return scores >= threshold - coarse.block_error
        left, right = (vectors[self.relevance.positions(rows)] for rows in (queries, texts))
        # Twice the error of a float32 product of two vectors (as in `relabel.topk.screen`).
        slack = 8.2 * (left.shape[1] + 8) * 2.0**-24
        return np.asarray(left @ right.T >= threshold - slack)

    @cached_property
    def _estimate(self) -> int:
        """Number of pairs that pass, estimated from a sample of query texts."""
        sample = np.random.default_rng(0).permutation(self._queries)[:_SAMPLE]
        return round(len(self._passing_pairs(sample)) * len(self._queries) / max(1, len(sample)))

    @cached_property
    def _parts(self) -> dict[str, Rows]:
        """Query texts of each file of refined pairs."""
        size = min(_QUERIES, max(1, len(self._queries) * _PAIRS // max(1, self._estimate)))
        groups = [self._queries[a : a + size] for a in range(0, max(1, len(self._queries)), size)]
        return {f"refined-{i:05d}-of-{len(groups):05d}.parquet": texts for i, texts in enumerate(groups)}
