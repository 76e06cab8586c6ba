"""SPICE of any captions of an encoding: pairs, blocks, nearest captions and new texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.threads import run_chunks
from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.finder import Search
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.sources.slab_search import SlabFinder
from relabel.sources.spice.load import Scenes, sizes_of
from relabel.sources.spice.scene_graph import I8, ReferenceGraph, Words
from relabel.sources.spice.scene_graph import Rows as TupleRows
from relabel.sources.spice.scoring import BEST, MEAN, TOGETHER, count_pairs, score_block, score_pairs
from relabel.sources.spice.tuple_search import Counts, TupleIndex, TupleTable, search, tuple_index, tuple_table
from relabel.store.workdir import Work

_USUAL = np.array([128, 64, 64, 4096])  # see `ReferenceGraph.of`: holds the five captions of nearly any image
_TOGETHER = 128  # queries a piece
NewText = Callable[[str, Scenes], tuple[TupleRows, Words]]


@dataclass(frozen=True, eq=False)
class SceneGraphRelevance(Relevance):
    """SPICE of encoded captions: F1 of the caption's tuples, in 0..1.

    `refs` merges all references into one graph, which is SPICE; `max` and `mean` take them one by one. Where the
    references or the caption have no tuples, relevance is 0, as the jar has it.

    Attributes
    ----------
    scenes : Scenes
        The encoded rows.
    new_text : callable
        Parses a new text.
    threads : int
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    scenes: Scenes
    new_text: NewText
    threads: int
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32))

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Return the same bits as `block`. Pairs of one reference set cost little more than one."""
        pooling = pooling or self.pooling
        sets, how = self.set_positions(references, pooling), self.how(pooling)
        chosen = self.positions(captions).astype(np.int32)
        order = np.argsort(sets.rows[sets.indptr[:-1]], kind="stable")  # equal sets next to each other
        sets, ordered, most = sets.take(order), chosen[order], self.largest(sets, how)
        found, out = np.empty(len(chosen)), np.empty(len(chosen))

        def work(lo: int, hi: int) -> None:
            indptr, scenes = sets.indptr[lo : hi + 1], self.scenes
            rows, words, graphs = scenes.rows, scenes.words, scenes.graphs
            with self.graph(most) as graph:
                score_pairs(indptr, sets.rows, how, rows, words, graphs, ordered[lo:hi], graph, found[lo:hi])

        run_chunks(work, len(chosen), self.threads, step=16384)
        found[self._broken_sets(sets) | self.broken[ordered]] = np.nan
        out[order] = found
        return out

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        pooling = pooling or self.pooling
        sets, how = self.set_positions(references, pooling), self.how(pooling)
        chosen = self.positions(captions).astype(np.int32)
        out, most = np.empty((len(sets), len(chosen))), self.largest(sets, how)

        def work(lo: int, hi: int) -> None:
            indptr, scenes = sets.indptr[lo : hi + 1], self.scenes
            rows, words, graphs = scenes.rows, scenes.words, scenes.graphs
            with self.graph(most) as graph:
                score_block(indptr, sets.rows, how, rows, words, graphs, chosen, graph, out[lo:hi])

        run_chunks(work, len(sets), self.threads, step=256)
        if len(self.failed):
            out[self._broken_sets(sets)] = np.nan
            out[:, self.broken[chosen]] = np.nan
        return out

    def counts(self, references: References, captions: Rows) -> I8:
        """Count tuples of P pairs, the references of each merged.

        Returns
        -------
        (P, 3, 3) int64
            Objects, attributes, relations; how many match, how many the caption has, how many the references have. The
            jar's own F1 of objects, attributes or relations is NaN where the references have none; see `f1`.
        """
        sets, chosen = self.set_positions(references, "refs"), self.positions(captions).astype(np.int32)
        out, scenes = np.empty((len(chosen), 3, 3), np.int64), self.scenes
        with self.graph(self.largest(sets, TOGETHER)) as graph:
            count_pairs(sets.indptr, sets.rows, scenes.rows, scenes.words, scenes.graphs, chosen, graph, out)
        return out

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """The text is parsed, which takes seconds and needs SPICE's parser.

        Raises
        ------
        MissingError
            Without Java, CoreNLP or pycocoevalcap.
        """
        rows, words = self.new_text(text, self.scenes)
        chosen, out = self.positions(captions).astype(np.int32), np.empty((1, len(captions)))
        graph = ReferenceGraph.of(words, self.scenes.concepts, sizes_of(rows, words)[0])
        graphs, sets = self.scenes.graphs, References.single(np.zeros(1, np.int32))
        score_block(sets.indptr, sets.rows, TOGETHER, rows, words, graphs, chosen, graph, out)
        out[:, self.broken[chosen]] = np.nan
        found: Scores = out[0]
        return found

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> SceneGraphFinder:
        return SceneGraphFinder(self, search, pooling or self.pooling, runtime)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        from relabel.sources.spice.export import write_scene_graphs

        return LookupArrays("scene_graphs", "int32", self.failed, write_scene_graphs(self, work))

    def how(self, pooling: Pooling) -> int:
        """Say how the kernels take references."""
        found: dict[Pooling, int] = {"max": BEST, "mean": MEAN}
        return found.get(pooling, TOGETHER)

    def largest(self, sets: References, how: int) -> I8:
        """Bound the graphs of some sets: see `ReferenceGraph.of`."""
        size = self.scenes.size[sets.rows]
        if how == TOGETHER and len(sets):
            size = np.asarray(np.add.reduceat(size, sets.indptr[:-1], axis=0), np.int64)
        return np.asarray(size.max(axis=0, initial=1), np.int64)

    @contextmanager
    def graph(self, most: I8) -> Iterator[ReferenceGraph]:
        """Make graph for graphs that are no larger, or take what another call has left: kernels leave it empty.

        New memory costs a small block more than its scores.
        """
        try:
            graph = self._spare.pop()
        except IndexError:
            graph = None
        if graph is None or not graph.holds(most):
            graph = ReferenceGraph.of(self.scenes.words, self.scenes.concepts, np.maximum(most, _USUAL))
        yield graph
        self._spare.append(graph)  # not after an interrupt

    @cached_property
    def _spare(self) -> list[ReferenceGraph]:
        return []

    @cached_property
    def broken(self) -> NDArray[np.bool_]:
        """Say of each encoded row whether it failed: (len(rows),) bool."""
        out = np.zeros(len(self.rows), np.bool_)
        out[self.positions(self.failed)] = True
        return out

    def _broken_sets(self, sets: References) -> NDArray[np.bool_]:
        if not len(sets):
            return np.zeros(0, np.bool_)
        return np.asarray(np.logical_or.reduceat(self.broken[sets.rows], sets.indptr[:-1]))


@dataclass(frozen=True, eq=False)
class SceneGraphFinder(SlabFinder[TupleIndex]):
    """Neighbours of reference sets by SPICE.

    A failed row is nobody's neighbour while there are others (it comes last, with score NaN), and a set that counts one
    has the first candidates with score NaN.

    Attributes
    ----------
    relevance, search, pooling, runtime
        See SlabFinder.
    """

    relevance: SceneGraphRelevance

    @override
    def search_slab(
        self, sets: References, exclude: Rows, slab: TupleIndex, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        relevance, how = self.relevance, self.relevance.how(self.pooling)
        scenes, most = relevance.scenes, relevance.largest(sets, how)

        def work(lo: int, hi: int) -> None:
            counts = Counts.allocate(len(slab.rows), len(self._table.concepts))
            indptr, best = sets.indptr[lo : hi + 1], (rows[lo:hi], scores[lo:hi])
            rows_of, words, table, out = scenes.rows, scenes.words, self._table, exclude[lo:hi]
            with relevance.graph(most) as graph:
                search(indptr, sets.rows, how, out, rows_of, words, table, slab, graph, counts, *best)

        run_chunks(work, len(sets), self.runtime.threads, _TOGETHER, done)

    def fill_missing(self, sets: References, exclude: Rows, rows: Rows, scores: Scores) -> None:
        """Give sets that count a failed row, and lists that lack others, what stands for no neighbour."""
        failed = np.logical_or.reduceat(self.relevance.broken[sets.rows], sets.indptr[:-1])
        for i in np.flatnonzero(failed | (scores < 0).any(axis=1)):
            count = 0 if failed[i] else int((scores[i] >= 0).sum())
            rest = self.search.candidates[: self.search.width + 1] if count == 0 else self._failed
            rows[i, count:] = rest[rest != exclude[i]][: self.search.width - count]
            scores[i, count:] = np.nan

    @override
    def build_slab(self, rows: Rows) -> TupleIndex:
        return tuple_index(
            self.relevance.scenes.graphs, self._table, self.relevance.positions(rows).astype(np.int32), rows
        )

    @override
    def max_slab_rows(self) -> int:
        """Return how many candidates fit: a slab is its index and each thread's counts."""
        graphs, tuples = self.relevance.scenes.graphs, len(self._table.concepts)
        each = 12 * len(graphs.concepts) / max(1, len(graphs.start) - 1) + 16 + 18 * self.runtime.threads
        left = self.runtime.memory - tuples * (8 + 4 * self.runtime.threads)
        return int(left / each)

    @cached_property
    def _table(self) -> TupleTable:
        return tuple_table(self.relevance.scenes.graphs, self.relevance.scenes.concepts)

    @cached_property
    def searchable(self) -> Rows:
        """Candidates that have not failed."""
        candidates = np.array(self.search.candidates, np.int32)
        return candidates[~self.relevance.broken[self.relevance.positions(candidates)]]

    @cached_property
    def _failed(self) -> Rows:
        """Candidates that have failed."""
        candidates = np.array(self.search.candidates, np.int32)
        return candidates[self.relevance.broken[self.relevance.positions(candidates)]]
