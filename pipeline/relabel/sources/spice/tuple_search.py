"""Exact search for the k best candidates of a reference set, compiled: only tuples that match are looked at.

The marks of a graph (see `scoring`) name the distinct tuples of candidates that match, whose holders are counted. F1 is
2 matched / (candidate + reference) but for rounding, so who cannot reach the k-th best costs one multiplication.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import group, ranges
from relabel.core.numeric.heap import push
from relabel.core.numeric.jit import jit
from relabel.sources.spice.scene_graph import I4, I8, TOUCHED, Graphs, ReferenceGraph, Rows, Words
from relabel.sources.spice.scoring import BEST, F8, MEAN, TOGETHER, close_refs, f1, matches, open_refs

_SLACK = 1 + 1e-9  # more than F1 and its bound lose by rounding


class TupleTable(NamedTuple):
    """D distinct tuples, by (kind, first, second, third concept).

    Attributes
    ----------
    number : (T,) int32
        Which one each tuple of the graphs is.
    concepts : (D, 3) int32
        See Graphs.
    object_of : (C,) int32
        The tuple that is a concept alone, -1 where there is none.
    attributes, relations : (C + 1,) int64
        Those that begin with concept c are ``attributes[c]:attributes[c + 1]``, and so on.
    """

    number: I4
    concepts: I4
    object_of: I4
    attributes: I8
    relations: I8


class TupleIndex(NamedTuple):
    """Inverted index of N candidates.

    Attributes
    ----------
    rows : (N,) int32
        Corpus rows, ascending.
    size : (N,) int32
        Tuples of each.
    start : (D + 1,) int64
    position : int32
        The candidates that hold tuple d are ``position[start[d]:start[d + 1]]``.
    """

    rows: I4
    size: I4
    start: I8
    position: I4


class Counts(NamedTuple):
    """Counts of N candidates, and a list of up to D tuples.

    Attributes
    ----------
    matched : (N,) uint16
        Tuples that match; zero between references.
    met, ever : (N + 1,) int32
        Positions that matched the reference at hand, or one of the set's.
    total : (N,) float64
        Best or sum over references; zero between sets.
    tuples : (D,) int32
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
    """Number the distinct tuples of some graphs over so many concepts."""
    first, second, third = (graphs.concepts[:, i].astype(np.int64) for i in range(3))
    kind = (second >= 0).astype(np.int64) + (third >= 0)
    rest, code = np.unique((second + 1) * (concepts + 1) + third + 1, return_inverse=True)
    keys, at, number = np.unique(
        (kind * concepts + first) * max(1, len(rest)) + code.reshape(-1), return_index=True, return_inverse=True
    )
    distinct = np.ascontiguousarray(graphs.concepts[at])
    edges = np.searchsorted(keys // max(1, len(rest)), np.arange(3 * concepts + 1)).astype(np.int64)
    held = edges[1 : concepts + 1] > edges[:concepts]
    object_of = np.where(held, edges[:concepts], -1).astype(np.int32)
    attributes, relations = edges[concepts : 2 * concepts + 1].copy(), edges[2 * concepts :].copy()
    return TupleTable(number.reshape(-1).astype(np.int32), distinct, object_of, attributes, relations)


def tuple_index(graphs: Graphs, table: TupleTable, places: I4, rows: I4) -> TupleIndex:
    """Invert the candidates at some places in the graphs, ascending, with their corpus rows."""
    lo = graphs.start[places]
    size = graphs.start[places.astype(np.int64) + 1] - lo
    start, entries = group(table.number[ranges(lo, size)], len(table.concepts))
    owner = np.repeat(np.arange(len(places), dtype=np.int32), size)
    return TupleIndex(rows, size.astype(np.int32), start, owner[entries])


@jit
def _matching(table: TupleTable, graph: ReferenceGraph, out: I4) -> int:
    """List the distinct tuples that match a graph; return how many."""
    la, lr, bits, count = graph.limbs[0], graph.limbs[1], graph.bits, 0
    for i in range(graph.used[TOUCHED]):
        c = graph.touched[i]
        if table.object_of[c] >= 0 and matches(c, -1, -1, bits, la, lr):
            out[count] = table.object_of[c]
            count += 1
        # Tuples are sorted by their first concept. Those of a concept are visited only if it owns an attribute, or is
        # the subject of a relation, in the graph.
        owner, subject = np.uint64(0), np.uint64(0)
        for k in range(la):
            owner |= bits[c, 1 + k]
        for k in range(lr):
            subject |= bits[c, 1 + 2 * la + k]
        if owner != 0:
            for t in range(table.attributes[c], table.attributes[c + 1]):
                out[count] = t  # kept only if the count moves on
                count += int(matches(c, table.concepts[t, 1], -1, bits, la, lr))
        if subject != 0:
            for t in range(table.relations[c], table.relations[c + 1]):
                out[count] = t
                count += int(matches(c, table.concepts[t, 1], table.concepts[t, 2], bits, la, lr))
    return count


@jit
def _count(tuples: I4, start: I8, position: I4, matched: NDArray[np.uint16], met: I4) -> int:
    """Count how many of some tuples each holder has, and list the holders; return how many they are."""
    count = 0
    for t in tuples:
        for e in range(start[t], start[t + 1]):
            p = position[e]
            met[count] = p
            count += int(matched[p] == 0)
            matched[p] += 1
    return count


@jit
def _offer(met: I4, itself: int, reference: int, matched: NDArray[np.uint16], index: TupleIndex, s: F8, w: I4) -> None:
    """Push the candidates met into the heap."""
    size, rows, width = index.size, index.rows, len(s)
    for p in met:
        # F1 = 2 matched / (size + reference) up to rounding: below the k-th best, no division is needed.
        if 2.0 * _SLACK * matched[p] >= s[0] * (size[p] + reference) and p != itself:
            push(f1(matched[p], size[p], reference), rows[p], s, w, width)


@jit
def search(
    indptr: I8,
    sets: I4,
    how: int,
    exclude: I4,
    rows: Rows,
    words: Words,
    table: TupleTable,
    index: TupleIndex,
    graph: ReferenceGraph,
    counts: Counts,
    best_rows: I4,
    best_scores: F8,
) -> None:
    """Improve the K best of M reference sets by some candidates.

    Parameters
    ----------
    indptr, sets : (M + 1,) int64, (indptr[-1],) int32
        Reference sets of places in `rows`.
    how : int
        See scoring.
    exclude : (M,) int32
        Corpus row that is left out of each set's candidates, or -1.
    rows, words, table, holders
    graph, counts
        Empty; left so.
    best_rows, best_scores : (M, K) int32 and float64
        Heaps with the worst on top; -1 is the score of an empty place, and the largest int32 its row.
    """
    matched, met, total, ever = counts.matched, counts.met, counts.total, counts.ever
    for m in range(len(indptr) - 1):
        set_, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        # Position of the excluded row; past the end where the index does not hold it.
        itself = np.searchsorted(index.rows, exclude[m])
        if itself < len(index.rows) and index.rows[itself] != exclude[m]:
            itself = len(index.rows)
        step, held = len(set_) if how == TOGETHER else 1, 0
        for r in range(0, len(set_), step):
            reference = open_refs(set_[r : r + step], rows, words, graph)
            tuples = counts.tuples[: _matching(table, graph, counts.tuples)]
            close_refs(graph)
            some = met[: _count(tuples, index.start, index.position, matched, met)]
            if how == TOGETHER:  # one graph for the whole set: its scores are final
                _offer(some, itself, reference, matched, index, s, w)
            for p in some:
                if how != TOGETHER:  # one graph per reference: fold its scores, and zero the counts for the next
                    score = f1(matched[p], index.size[p], reference)
                    ever[held] = p
                    held += int(total[p] == 0.0)
                    total[p] = max(total[p], score) if how == BEST else total[p] + score
                    matched[p] = 0
            if how == TOGETHER:
                ever[: len(some)] = some
                held = len(some)
        if how != TOGETHER:
            for p in ever[:held]:
                if p != itself:
                    push(total[p] / len(set_) if how == MEAN else total[p], index.rows[p], s, w, len(s))
        # Candidates without a match score 0: they fill what is left, in the order of rows.
        if s[0] <= 0.0:
            for p in range(len(matched)):
                new = matched[p] == 0 and total[p] == 0.0 and p != itself
                if new and not push(0.0, index.rows[p], s, w, len(s)):
                    break
        # Only what was met is cleared, so a set costs nothing for the other candidates.
        for p in ever[:held]:
            matched[p] = 0
            total[p] = 0.0


@jit
def list_matches(
    indptr: I8,
    sets: I4,
    rows: Rows,
    words: Words,
    table: TupleTable,
    graph: ReferenceGraph,
    buffer: I4,
    sizes: I8,
    counts: I8,
    out: I4,
) -> None:
    """List the tuples that M reference sets match.

    Parameters
    ----------
    indptr, sets, rows, words, table, graph
        See `search`.
    buffer : (D + 1,) int32
        ReferenceGraph.
    sizes, counts : (M,) int64
        Filled: tuples of each merged set, and distinct tuples of candidates that match.
    out : int32
        Filled set by set, each ascending, if it is not empty: ``counts.sum()`` numbers.
    """
    at = 0
    for m in range(len(indptr) - 1):
        sizes[m] = open_refs(sets[indptr[m] : indptr[m + 1]], rows, words, graph)
        counts[m] = _matching(table, graph, buffer)
        close_refs(graph)
        if len(out):
            out[at : at + counts[m]] = np.sort(buffer[: counts[m]])
            at += counts[m]
