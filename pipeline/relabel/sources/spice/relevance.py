"""SPICE of any captions of an encoding: pairs, blocks, nearest captions, new texts and the arrays of a lookup."""

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

_QUERIES = 128  # queries per task of a thread


@dataclass(frozen=True, eq=False, repr=False)
class SceneGraphRelevance(Relevance):
    """SPICE of encoded captions: F1 of the caption's tuples, in 0..1.

    `set` merges all references into one graph, which is SPICE; `max` and `mean` score the references one by one. If
    the references or the caption have no tuples, relevance is 0, as in the jar.

    `scenes`: the encoded rows.
    `with_text`: parses a new text; returns the encoded rows followed by it.
    """

    scenes: Scenes
    with_text: Callable[[str], Scenes]
    threads: int

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs with the bits of `block`; pairs of one reference set cost little more than a single pair."""
        pooling = pooling or self.pooling
        sets, mode = self.set_positions(references, pooling), self.mode(pooling)
        candidates = self.positions(captions).astype(np.int32)
        # Sorted by their first caption, equal sets are neighbours, and the kernel merges them once.
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
        """Score N captions against one new text, which is parsed first; this takes seconds."""
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
        """Return the kernels' code of a pooling; `first` is the merge of a single reference."""
        codes: dict[Pooling, int] = {"max": BEST, "mean": MEAN}
        return codes.get(pooling, MERGED)

    def graph(self, sets: References, mode: int, lo: int, hi: int) -> tuple[I8, ReferenceGraph]:
        """Return the row pointers of the sets ``lo:hi``, and an empty graph that can hold any of them."""
        indptr = sets.indptr[lo : hi + 1]
        size = self.scenes.size[sets.rows[indptr[0] : indptr[-1]]]
        if mode == MERGED and len(size):
            # Merging only ever joins concepts, so the sizes of the captions add up to a bound.
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
        """Return the mask of the sets with a failed caption, (M,) bool."""
        return np.asarray(np.logical_or.reduceat(self.failed_mask[sets.rows], sets.indptr[:-1]))


@dataclass(frozen=True, eq=False)
class SceneGraphFinder(SlabFinder[TupleIndex]):
    """Neighbours of reference sets by SPICE.

    A failed row comes after all others, with score NaN. A set with a failed caption has the first candidates as its
    neighbours, all with score NaN.

    `relevance`, `search`, `pooling`, `runtime`: see SlabFinder.
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
            known, best = relevance.scenes.captions, (rows[lo:hi], scores[lo:hi])
            search(indptr, sets.rows, mode, exclude[lo:hi], known, self._table, slab, graph, counts, *best)

        run_chunks(work, len(sets), self.runtime.threads, _QUERIES, done)

    def fill_missing(self, sets: References, exclude: Rows, rows: Rows, scores: Scores) -> None:
        """Fill the lists of sets with a failed caption, and lists that are too short, with scores of NaN."""
        failed = self.relevance.failed_sets(sets)
        for i in np.flatnonzero(failed | (scores < 0).any(axis=1)):
            # Keep the neighbours that were found, unless the set itself failed.
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
        """Return the number of candidates per slab: memory holds the slab's index and the counts of each thread."""
        graphs, tuples = self.relevance.scenes.captions.graphs, len(self._table.concepts)
        # Per candidate: 12 bytes per tuple while the index is built, 16 of its own, and 2 + 4 + 4 + 8 per thread.
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

    Beside the opened encoding this holds the largest of the arrays.

    Returns dict of str to int: sizes for `lookup.json`: `tuples`.
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
