"""SPICE of captions of an encoding: pairs, blocks, neighbours, new texts and lookup arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.csr import indptr_of
from relabel.core.numeric.threads import run_chunks
from relabel.core.runtime import Advance, Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.finder import Search, SlabFinder
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.sources.spice.load import Scenes
from relabel.sources.spice.scene_graph import I8, ReferenceGraph
from relabel.sources.spice.scoring import BEST, MEAN, MERGED, score_block, score_pairs
from relabel.sources.spice.tuple_search import (
    Counts,
    TupleIndex,
    TupleTable,
    list_matches,
    search,
    tuple_index,
    tuple_table,
)
from relabel.store.arrays import write_array
from relabel.store.workdir import Work

_QUERIES = 128  # queries per chunk of a thread


@dataclass(frozen=True, eq=False, repr=False)
class SceneGraphRelevance(Relevance):
    """SPICE of encoded captions: F1 of the caption's tuples, in 0..1.

    Pooling `set` merges all references into one graph, as SPICE is defined; `max` and `mean` score the references
    separately. If the references or the caption have no tuples, relevance is 0, as in the jar.

    `scenes`: scenes of the encoded rows.
    `with_text`: parses a new text, and returns the scenes of the encoded rows followed by the text.
    """

    scenes: Scenes
    with_text: Callable[[str], Scenes]
    threads: int

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs, bit-identical to `block`. Pairs of the same set cost little more than a single pair."""
        pooling = pooling or self.pooling
        sets, mode = self.set_positions(references, pooling), self.mode(pooling)
        candidates = self.positions(captions).astype(np.int32)
        # Sort by the first caption: the kernel merges consecutive equal sets once.
        order = np.argsort(sets.rows[sets.indptr[:-1]], kind="stable")
        sets, ordered = sets.take(order), candidates[order]
        scores, out = np.empty(len(candidates)), np.empty(len(candidates))

        def work(lo: int, hi: int) -> None:
            indptr, graph = self.graph(sets, mode, lo, hi)
            score_pairs(indptr, sets.rows, mode, self.scenes.captions, ordered[lo:hi], graph, scores[lo:hi])

        run_chunks(work, len(candidates), self.threads, step=16384)
        scores[self.failed_sets(sets) | self.failed_mask[ordered]] = np.nan
        out[order] = scores
        return out

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        pooling = pooling or self.pooling
        sets, mode = self.set_positions(references, pooling), self.mode(pooling)
        candidates = self.positions(captions).astype(np.int32)
        out = np.empty((len(sets), len(candidates)))

        def work(lo: int, hi: int) -> None:
            indptr, graph = self.graph(sets, mode, lo, hi)
            score_block(indptr, sets.rows, mode, self.scenes.captions, candidates, graph, out[lo:hi])

        run_chunks(work, len(sets), self.threads, step=256)
        out[self.failed_sets(sets)] = np.nan
        out[:, self.failed_mask[candidates]] = np.nan
        return out

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Score N captions against one new text. Parsing takes seconds."""
        extended = replace(self, scenes=self.with_text(text))
        sets = References.single(np.array([len(self.rows)], np.int32))
        candidates, out = self.positions(captions).astype(np.int32), np.empty((1, len(captions)))
        indptr, graph = extended.graph(sets, MERGED, 0, 1)
        score_block(indptr, sets.rows, MERGED, extended.scenes.captions, candidates, graph, out)
        out[:, self.failed_mask[candidates]] = np.nan
        return np.asarray(out[0], np.float64)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> SceneGraphFinder:
        return SceneGraphFinder(self, search, pooling or self.pooling, runtime)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        return LookupArrays("scene_graphs", "int32", self.failed, write_scene_graphs(self, work))

    def mode(self, pooling: Pooling) -> int:
        """Return the mode of a pooling in the kernels. `first` merges a single reference."""
        codes: dict[Pooling, int] = {"max": BEST, "mean": MEAN}
        return codes.get(pooling, MERGED)

    def graph(self, sets: References, mode: int, lo: int, hi: int) -> tuple[I8, ReferenceGraph]:
        """Return the row pointers of the sets ``lo:hi``, and an empty graph with enough capacity for each of them."""
        indptr = sets.indptr[lo : hi + 1]
        size = self.scenes.size[sets.rows[indptr[0] : indptr[-1]]]
        if mode == MERGED and len(size):
            # A merge can only reduce the number of concepts, so the sum over captions is an upper bound.
            size = np.add.reduceat(size, indptr[:-1] - indptr[0], axis=0)
        words = self.scenes.captions.words
        return indptr, ReferenceGraph.of(words, self.scenes.concepts, size.max(axis=0, initial=1))

    @cached_property
    def failed_mask(self) -> NDArray[np.bool_]:
        """Mask of the encoded rows that failed, (len(rows),) bool."""
        out = np.zeros(len(self.rows), np.bool_)
        out[self.positions(self.failed)] = True
        return out

    def failed_sets(self, sets: References) -> NDArray[np.bool_]:
        """Return a mask of the sets with a failed caption, (M,) bool."""
        return np.asarray(np.logical_or.reduceat(self.failed_mask[sets.rows], sets.indptr[:-1]))


@dataclass(frozen=True, eq=False)
class SceneGraphFinder(SlabFinder[TupleIndex]):
    """Finder of the neighbours of reference sets by SPICE.

    Failed rows are sorted last, with score NaN. For a set with a failed caption, the neighbours are the first
    candidates, with score NaN.
    """

    relevance: SceneGraphRelevance

    @override
    def search_slab(
        self, sets: References, exclude: Rows, slab: TupleIndex, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        relevance, mode = self.relevance, self.relevance.mode(self.pooling)

        def work(lo: int, hi: int) -> None:
            counts = Counts.allocate(len(slab.rows), len(self._table.concepts))
            indptr, graph = relevance.graph(sets, mode, lo, hi)
            captions, best = relevance.scenes.captions, (rows[lo:hi], scores[lo:hi])
            search(indptr, sets.rows, mode, exclude[lo:hi], captions, self._table, slab, graph, counts, *best)

        run_chunks(work, len(sets), self.runtime.threads, _QUERIES, done)

    def fill_missing(self, sets: References, exclude: Rows, rows: Rows, scores: Scores) -> None:
        """Fill short lists, and the lists of sets with a failed caption, with score NaN."""
        failed = self.relevance.failed_sets(sets)
        for i in np.flatnonzero(failed | (scores < 0).any(axis=1)):
            # Keep the neighbours of a short list, unless the set failed.
            count = 0 if failed[i] else int((scores[i] >= 0).sum())
            rest = np.setdiff1d(self.search.candidates, self.searchable)
            rest = rest if count else self.search.candidates[: self.search.width + 1]
            rows[i, count:] = rest[rest != exclude[i]][: self.search.width - count]
            scores[i, count:] = np.nan

    @override
    def build_slab(self, rows: Rows) -> TupleIndex:
        return tuple_index(
            self.relevance.scenes.captions.graphs, self._table, self.relevance.positions(rows).astype(np.int32), rows
        )

    @override
    def max_slab_rows(self) -> int:
        """Return the maximum number of candidates per slab, for the index and the counts of all threads."""
        graphs, tuples = self.relevance.scenes.captions.graphs, len(self._table.concepts)
        # Bytes per candidate: 12 per tuple while the index is built, 16 in the index, and 2 + 4 + 4 + 8 per thread.
        each = 12 * len(graphs.concepts) / max(1, len(graphs.start) - 1) + 16 + 18 * self.runtime.threads
        left = self.runtime.memory - tuples * (8 + 4 * self.runtime.threads)
        return int(left / each)

    @cached_property
    def _table(self) -> TupleTable:
        return tuple_table(self.relevance.scenes.captions.graphs, self.relevance.scenes.concepts)

    @cached_property
    def searchable(self) -> Rows:
        """Candidates that have not failed."""
        candidates = np.array(self.search.candidates, np.int32)
        return candidates[~self.relevance.failed_mask[self.relevance.positions(candidates)]]


def write_scene_graphs(relevance: SceneGraphRelevance, work: Work) -> dict[str, int]:
    """Write the arrays of the kind `scene_graphs` (see `relabel_train.lookup.spice`).

    In addition to the opened encoding, one array at a time is in memory. Returns the entry `tuples` of the sizes in
    `lookup.json`.
    """
    scenes, rows, corpus = relevance.scenes, relevance.rows, relevance.corpus
    graphs = scenes.captions.graphs
    table = tuple_table(graphs, scenes.concepts)
    write_array(work, "scene_graphs.indptr", graphs.start)
    write_array(work, "scene_graphs.tuples", table.number)
    images = range(int(corpus.image[rows.start]), int(corpus.image[rows.stop - 1]) + 1)
    captions = References.single(np.arange(rows.start, rows.stop, dtype=np.int32))
    for name, references in (("caption", captions), ("image", corpus.references(images))):
        sets = relevance.set_positions(references, "set")
        _, graph = relevance.graph(sets, MERGED, 0, len(sets))
        sizes, counts, matches = list_matches(sets.indptr, sets.rows, scenes.captions, table, graph)
        write_array(work, f"scene_graphs.{name}_indptr", indptr_of(counts))
        write_array(work, f"scene_graphs.{name}_matches", matches)
        if name == "image":
            write_array(work, "scene_graphs.image_size", sizes.astype(np.int32))
    return {"tuples": len(table.concepts)}
