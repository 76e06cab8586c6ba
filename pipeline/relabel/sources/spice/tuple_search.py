"""Exact search for the k best candidates of a reference set, compiled. Only matching tuples are visited.

The marks of a graph (see `scoring`) select the distinct tuples that match. An inverted index gives the candidates with
each of these tuples, and counting them gives the number of matched tuples per candidate. F1 is equal to
2 matched / (candidate + reference) up to rounding, so a candidate below the k-th best costs one multiplication.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import group, ranges
from relabel.core.numeric.kernels import jit
from relabel.sources.spice.scene_graph import I4, I8, TOUCHED, Captions, Graphs, ReferenceGraph
from relabel.sources.spice.scoring import BEST, F8, MEAN, MERGED, close_refs, f1, matches, open_refs
from relabel.topk.heaps import heap_push

_SLACK = 1 + 1e-9  # greater than the relative rounding errors of F1 and of its bound


class TupleTable(NamedTuple):
    """D distinct tuples, sorted by (kind, first, second, third concept).

    `number`: (T,) int32; index of each tuple of the graphs in the distinct tuples.
    `concepts`: (D, 3) int32; see Graphs.
    `object_of`: (C,) int32; index of the object tuple of each concept, or -1.
    `attributes`, `relations`: (C + 1,) int64; the attribute tuples that start with concept c are
        ``attributes[c]:attributes[c + 1]``, and likewise for relations.
    """

    number: I4
    concepts: I4
    object_of: I4
    attributes: I8
    relations: I8


class TupleIndex(NamedTuple):
    """Inverted index of N candidates.

    `rows`: (N,) int32; ascending corpus rows.
    `size`: (N,) int32; number of tuples of each candidate.
    `start`: (D + 1,) int64.
    `position`: the candidates with tuple d are ``position[start[d]:start[d + 1]]``.
    """

    rows: I4
    size: I4
    start: I8
    position: I4


class Counts(NamedTuple):
    """Counts of N candidates, and a list of up to D tuples.

    `matched`: (N,) uint16; number of matching tuples; zero between references.
    `met`, `ever`: (N + 1,) int32; candidates that match the current reference, and those that match any reference of
        the set. The last element is scratch memory.
    `total`: (N,) float64; maximum or sum of scores over references; zero between sets.
    `tuples`: (D,) int32; distinct tuples that match the current reference.
    """

    matched: NDArray[np.uint16]
    met: I4
    ever: I4
    total: F8
    tuples: I4

    @classmethod
    def allocate(cls, candidates: int, tuples: int) -> Counts:
        """Allocate for N candidates and D tuples."""
        met, ever = np.empty((2, candidates + 1), np.int32)
        return cls(np.zeros(candidates, np.uint16), met, ever, np.zeros(candidates), np.empty(tuples, np.int32))


def tuple_table(graphs: Graphs, concepts: int) -> TupleTable:
    """Number the distinct tuples of graphs."""
    first, second, third = (graphs.concepts[:, i].astype(np.int64) for i in range(3))
    kind = (second >= 0).astype(np.int64) + (third >= 0)
    # Encode (second, third) densely first, so that the whole key fits into an int64.
    rest, code = np.unique((second + 1) * (concepts + 1) + third + 1, return_inverse=True)
    keys, at, number = np.unique(
        (kind * concepts + first) * max(1, len(rest)) + code.reshape(-1), return_index=True, return_inverse=True
    )
    distinct = np.ascontiguousarray(graphs.concepts[at])
    # Keys are sorted by (kind, first): the tuples of a kind with first concept c start at edges[kind * concepts + c].
    edges = np.searchsorted(keys // max(1, len(rest)), np.arange(3 * concepts + 1)).astype(np.int64)
    held = edges[1 : concepts + 1] > edges[:concepts]
    object_of = np.where(held, edges[:concepts], -1).astype(np.int32)
    attributes, relations = edges[concepts : 2 * concepts + 1].copy(), edges[2 * concepts :].copy()
    return TupleTable(number.reshape(-1).astype(np.int32), distinct, object_of, attributes, relations)


def tuple_index(graphs: Graphs, table: TupleTable, positions: I4, rows: I4) -> TupleIndex:
    """Build the inverted index of candidates, given by ascending positions in the graphs and their corpus rows."""
    lo = graphs.start[positions]
    size = graphs.start[positions.astype(np.int64) + 1] - lo
    start, entries = group(table.number[ranges(lo, size)], len(table.concepts))
    owner = np.repeat(np.arange(len(positions), dtype=np.int32), size)
    return TupleIndex(rows, size.astype(np.int32), start, owner[entries])


@jit
def _matching(table: TupleTable, graph: ReferenceGraph, out: I4) -> int:
    """List the distinct tuples that match a graph, and return their number."""
    la, lr, bits, count = graph.limbs[0], graph.limbs[1], graph.bits, 0
    # A tuple can only match if its first concept is marked.
    for i in range(graph.used[TOUCHED]):
        c = graph.touched[i]
        if table.object_of[c] >= 0 and matches(c, -1, -1, bits, la, lr):
            out[count] = table.object_of[c]
            count += 1
        # Visit the attribute tuples of a concept only if it matches a node with attributes, and the relation tuples
        # only if it matches the subject of a relation.
        owner, subject = np.uint64(0), np.uint64(0)
        for k in range(la):
            owner |= bits[c, 1 + k]
        for k in range(lr):
            subject |= bits[c, 1 + 2 * la + k]
        if owner != 0:
            for t in range(table.attributes[c], table.attributes[c + 1]):
                out[count] = t  # always written, and overwritten by the next tuple unless it matches
                count += int(matches(c, table.concepts[t, 1], -1, bits, la, lr))
        if subject != 0:
            for t in range(table.relations[c], table.relations[c + 1]):
                out[count] = t
                count += int(matches(c, table.concepts[t, 1], table.concepts[t, 2], bits, la, lr))
    return count


@jit
def _count(tuples: I4, start: I8, position: I4, matched: NDArray[np.uint16], met: I4) -> int:
    """Count the given tuples of each candidate, list the candidates with at least one, and return their number."""
    count = 0
    for t in tuples:
        for e in range(start[t], start[t + 1]):
            p = position[e]
            met[count] = p  # listed once, because the count increases only with the first tuple
            count += int(matched[p] == 0)
            matched[p] += 1
    return count


@jit
def _push_candidates(
    met: I4, itself: int, reference: int, matched: NDArray[np.uint16], index: TupleIndex, s: F8, w: I4
) -> None:
    """Push the candidates in `met` into the heap."""
    size, rows, width = index.size, index.rows, len(s)
    for p in met:
        # F1 = 2 matched / (size + reference) up to rounding. Compared without a division, because few candidates pass.
        if 2.0 * _SLACK * matched[p] >= s[0] * (size[p] + reference) and p != itself:
            heap_push(f1(matched[p], size[p], reference), rows[p], s, w, width)


@jit
def search(
    indptr: I8,
    sets: I4,
    mode: int,
    exclude: I4,
    captions: Captions,
    table: TupleTable,
    index: TupleIndex,
    graph: ReferenceGraph,
    counts: Counts,
    best_rows: I4,
    best_scores: F8,
) -> None:
    """Update the K best candidates of M reference sets with the candidates of an index.

    `indptr`, `sets`: (M + 1,) int64, (indptr[-1],) int32; reference sets. `mode`: `MERGED`, `BEST` or `MEAN`.
    `exclude`: (M,) int32; corpus row to exclude for each set, or -1. `graph`, `counts`: buffers, empty before and
    after. `best_rows`, `best_scores`: (M, K) int32 and float64; heaps with the worst pair on top. An empty slot has
    score -1 and the maximum int32 as its row.
    """
    matched, met, total, ever = counts.matched, counts.met, counts.total, counts.ever
    for m in range(len(indptr) - 1):
        refs, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        # Position of the excluded row, or past the end if it is not in the index.
        itself = np.searchsorted(index.rows, exclude[m])
        if itself < len(index.rows) and index.rows[itself] != exclude[m]:
            itself = len(index.rows)
        step, held = len(refs) if mode == MERGED else 1, 0
        for r in range(0, len(refs), step):
            reference = open_refs(refs[r : r + step], captions, graph)
            tuples = counts.tuples[: _matching(table, graph, counts.tuples)]
            close_refs(graph)
            touched = met[: _count(tuples, index.start, index.position, matched, met)]
            if mode == MERGED:  # with one graph for the set, scores are final
                _push_candidates(touched, itself, reference, matched, index, s, w)
            for p in touched:
                if mode != MERGED:  # with one graph per reference, combine scores and reset the counts
                    score = f1(matched[p], index.size[p], reference)
                    # Scores of matches are positive, so a total of 0 means that p is new.
                    ever[held] = p
                    held += int(total[p] == 0.0)
                    total[p] = max(total[p], score) if mode == BEST else total[p] + score
                    matched[p] = 0
            if mode == MERGED:
                ever[: len(touched)] = touched
                held = len(touched)
        if mode != MERGED:
            for p in ever[:held]:
                if p != itself:
                    heap_push(total[p] / len(refs) if mode == MEAN else total[p], index.rows[p], s, w, len(s))
        # Fill empty slots with candidates without a match, with score 0, in ascending order of rows. After the first
        # rejected row, all others would be rejected.
        if s[0] <= 0.0:
            for p in range(len(matched)):
                new = matched[p] == 0 and total[p] == 0.0 and p != itself
                if new and not heap_push(0.0, index.rows[p], s, w, len(s)):
                    break
        # Reset only the counts that were changed.
        for p in ever[:held]:
            matched[p] = 0
            total[p] = 0.0


@jit
def list_matches(
    indptr: I8, sets: I4, captions: Captions, table: TupleTable, graph: ReferenceGraph
) -> tuple[I8, I8, I4]:
    """List the distinct tuples of candidates that match M reference sets.

    `indptr`, `sets`, `captions`, `table`, `graph`: see `search`. Returns `sizes`, `counts`, (M,) int64: the numbers of
    tuples of each merged set, and of distinct matching tuples; and these tuples by set, in ascending order.
    """
    sizes, counts, total = np.empty(len(indptr) - 1, np.int64), np.empty(len(indptr) - 1, np.int64), 0
    buffer, out = np.empty(len(table.concepts) + 1, np.int32), np.empty(1, np.int32)
    for m in range(len(sizes)):
        sizes[m] = open_refs(sets[indptr[m] : indptr[m + 1]], captions, graph)
        counts[m] = _matching(table, graph, buffer)
        close_refs(graph)
        if total + counts[m] > len(out):
            out = np.concatenate((out, np.empty(len(out) + counts[m], np.int32)))
        out[total : total + counts[m]] = np.sort(buffer[: counts[m]])
        total += counts[m]
    return sizes, counts, out[:total].copy()
