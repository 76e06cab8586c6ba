"""Word mover's distance of bags of words and of sets of them: exact, compiled.

Kusner, Sun, Kolkin, Weinberger: "From Word Embeddings to Document Distances", ICML 2015, eq. 1. Sets: Kim et al., "Deep
Metric Learning Beyond Binary Supervision", CVPR 2019, eq. 13.

Supplies and demands are integers (count / total, times both totals). So every step of the solver moves at least one
unit, and the solver needs no tolerance to end. Costs are float64.

An infinite distance means that a caption has no word with a vector. Such a caption carries no information about its
set and counts as the mean of the others. If it were dropped from a sum, its set would seem nearer; if it counted as
infinite, a single such caption would make the set infinitely far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of, ranges
from relabel.core.numeric.kernels import jit
from relabel.core.numeric.threads import run_chunks
from relabel.core.types import Pooling
from relabel.corpus import References

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
_PAIRS = 1024  # pairs per task of a thread
_FIRST, _MAX, _MEAN, _SET = 0, 1, 2, 3
CODES: dict[Pooling, int] = {"first": _FIRST, "max": _MAX, "mean": _MEAN, "set": _SET}
"""Codes of poolings in the kernels. The names refer to relevance: `max` takes the least distance."""


class Bags(NamedTuple):
    """N captions as bags of words that have a vector, with T (caption, word) entries.

    `indptr`: (N + 1,) int64.
    `words`: (T,) int32; caption n has the words ``words[indptr[n]:indptr[n + 1]]``, ascending and distinct.
    `counts`: (T,) int64; occurrences of each word.
    `totals`: (N,) int64; sum of the counts of each caption; 0 if none of its words has a vector.
    """

    indptr: I8
    words: I4
    counts: I8
    totals: I8

    @classmethod
    def of(cls, indptr: I8, words: NDArray[np.integer], counts: NDArray[np.integer]) -> Bags:
        """Make bags from CSR rows of words and counts."""
        occurrences = np.ascontiguousarray(counts, np.int64)
        sums = np.concatenate([[0], np.cumsum(occurrences)])
        ids, starts = np.ascontiguousarray(words, np.int32), np.ascontiguousarray(indptr, np.int64)
        return cls(starts, ids, occurrences, np.diff(sums[indptr]).astype(np.int64))

    def take(self, captions: NDArray[np.integer]) -> Bags:
        """Return the bags of some captions, in their order."""
        sizes = self.indptr[captions + 1] - self.indptr[captions]
        entries = ranges(self.indptr[captions], sizes)
        return Bags(indptr_of(sizes), self.words[entries], self.counts[entries], self.totals[captions])


def distances(
    bags: Bags, vectors: F8, left: References, right: References, pooling: Pooling = "first", threads: int = 1
) -> F8:
    """Compute the distances of P pairs of sets of captions, which are symmetric.

    `first` takes the distance of the first captions, `max` the least of all pairs of captions, and `mean` their mean.
    `set` is the set distance W(X, Y) = sum_x min_y W(x, y) + sum_y min_x W(x, y).

    The bits are the same for (a, b) and (b, a) if both are captions, and for any number of threads.

    `vectors`: (V, D) float64; vectors of all words. `left`, `right`: P sets of captions each, by number; no set is
    empty. Returns (P,) float64 in [0, inf]; infinite if all captions of a set have empty bags.
    """
    if pooling == "first":
        left, right = left.first(), right.first()
    out, code = np.empty(len(left)), CODES[pooling]

    def work(lo: int, hi: int) -> None:
        ends = slice(lo, hi + 1)
        _distances(bags, vectors, left.indptr[ends], left.rows, right.indptr[ends], right.rows, code, out[lo:hi])

    run_chunks(work, len(out), threads, _PAIRS)
    return out


@jit
def _distances(bags: Bags, vectors: F8, starts: I8, left: I4, stops: I8, right: I4, pooling: int, out: F8) -> None:
    """Fill `out`, (P,), with the distances of pairs of sets."""
    for p in range(len(out)):
        a, b = left[starts[p] : starts[p + 1]], right[stops[p] : stops[p + 1]]
        cells = np.empty((len(a), len(b)))
        for i in range(len(a)):
            for j in range(len(b)):
                cells[i, j] = _distance(bags, vectors, a[i], b[j])
        out[p] = _pool(cells, pooling)


@jit
def pool_to_captions(distances: F8, pooling: int, out: F8) -> None:
    """Fill `out`, (N,), with the distances of a set to N captions, from the (N, R) distances of its captions."""
    for n in range(len(out)):
        out[n] = _pool(distances[n].reshape((-1, 1)), pooling)


@jit
def _pool(cells: F8, pooling: int) -> float:
    """Compute the distance of two sets of m and n captions from the (m, n) distances of their captions."""
    if pooling == _FIRST:
        return float(cells[0, 0])
    if pooling == _MAX:
        return float(cells.min())
    if pooling == _MEAN:
        total, finite = 0.0, 0
        for distance in cells.flat:
            if distance < np.inf:
                total, finite = total + distance, finite + 1
        return np.inf if finite == 0 else total / finite
    return _sum_nearest(cells) + _sum_nearest(cells.T)


@jit
def _sum_nearest(cells: F8) -> float:
    """Sum the least distance of each row; a row of infinite distances counts as the mean of the others."""
    total, finite = 0.0, 0
    for i in range(cells.shape[0]):
        least = cells[i].min()
        if least < np.inf:
            total, finite = total + least, finite + 1
    return np.inf if finite == 0 else total * (cells.shape[0] / finite)


@jit
def _distance(bags: Bags, vectors: F8, a: int, b: int) -> float:
    """Compute the word mover's distance of two bags."""
    if bags.totals[a] == 0 or bags.totals[b] == 0:
        return np.inf
    if not _in_canonical_order(bags, a, b):  # one orientation per pair, so both orders give the same bits
        a, b = b, a
    sources, sinks = slice(bags.indptr[a], bags.indptr[a + 1]), slice(bags.indptr[b], bags.indptr[b + 1])
    x, y = bags.words[sources], bags.words[sinks]
    cost = np.empty((len(x), len(y)))
    for i in range(len(x)):
        for j in range(len(y)):
            cost[i, j] = _euclidean(vectors[x[i]], vectors[y[j]])
    # Masses are scaled by both totals, so they are integers with equal sums.
    moved = transport(cost, bags.counts[sources] * bags.totals[b], bags.counts[sinks] * bags.totals[a])
    return moved / (float(bags.totals[a]) * float(bags.totals[b]))


@jit
def _in_canonical_order(bags: Bags, a: int, b: int) -> bool:
    """Return whether bag a comes first or equals bag b, by words and counts."""
    i, j = bags.indptr[a], bags.indptr[b]
    sizes = bags.indptr[a + 1] - i, bags.indptr[b + 1] - j
    for e in range(min(sizes[0], sizes[1])):
        if bags.words[i + e] != bags.words[j + e]:
            return bool(bags.words[i + e] < bags.words[j + e])
        if bags.counts[i + e] != bags.counts[j + e]:
            return bool(bags.counts[i + e] < bags.counts[j + e])
    return bool(sizes[0] <= sizes[1])


@jit
def _euclidean(x: F8, y: F8) -> float:
    """Compute the Euclidean distance of two vectors; the bits are the same for (x, y) and (y, x)."""
    total = 0.0
    for d in range(len(x)):
        total += (x[d] - y[d]) * (x[d] - y[d])
    return float(np.sqrt(total))


@jit
def transport(cost: F8, supply: I8, demand: I8) -> float:
    """Compute the least total cost of moving all supply to all demand by successive shortest paths.

    Node potentials keep reduced costs at 0 or more, so Dijkstra's algorithm over the dense matrix finds each path
    (Ahuja, Magnanti, Orlin: "Network Flows", 1993, section 9.7; Edmonds and Karp, J. ACM 1972).

    `cost`: (m, n) float64; 0 or more. `supply`, `demand`: (m,) and (n,) int64; positive, with equal sums. Overwritten.
    Returns float: sum of flow times cost, in the units of the supplies.
    """
    m, n = cost.shape
    flow, row, column = np.zeros((m, n), np.int64), np.empty(m), np.empty(n)
    # Start with potentials that make every reduced cost at least 0 and one per row exactly 0. An arc of reduced cost 0
    # is a shortest path, so flow along it is optimal.
    for j in range(n):
        column[j] = cost[:, j].min()
    for i in range(m):
        nearest = np.argmin(cost[i] - column)
        row[i] = cost[i, nearest] - column[nearest]
        moved = min(supply[i], demand[nearest])
        flow[i, nearest] = moved
        supply[i] -= moved
        demand[nearest] -= moved
    # Each augmentation moves at least one unit, so the integer supplies run out.
    for i in range(m):
        while supply[i] > 0:
            _augment(cost, flow, supply, demand, row, column, i)
    # The cost is summed once at the end, in one order, and not path by path.
    total = 0.0
    for i in range(m):
        for j in range(n):
            total += flow[i, j] * cost[i, j]
    return total


@jit
def _augment(cost: F8, flow: I8, supply: I8, demand: I8, row: F8, column: F8, start: int) -> None:
    """Send as much as possible along the shortest path from source `start` to any sink with demand left."""
    m, n = cost.shape
    # Distances of sources (`near`) and sinks (`far`) from the start. The predecessor of a source is a sink (-1 for the
    # start, -2 for a source that is not reached), and that of a sink is a source.
    near, back = np.zeros(m), np.full(m, -2)
    far, parent, done = np.empty(n), np.full(n, start), np.zeros(n, np.bool_)
    back[start] = -1
    for j in range(n):
        far[j] = max(cost[start, j] - row[start] - column[j], 0.0)  # rounding may give a value just below 0
    while True:
        # The unfinished sink with the least distance is final, as reduced costs are not negative (Dijkstra).
        end, length = -1, np.inf
        for j in range(n):
            if not done[j] and far[j] < length:
                end, length = j, far[j]
        if demand[end] > 0:
            break
        done[end] = True
        # Arcs with flow have reduced cost 0, so flow into the sink can be taken back free of cost. That reaches the
        # sources it came from, at the distance of the sink.
        for i in range(m):
            if flow[i, end] > 0 and back[i] == -2:
                back[i], near[i] = end, length
                for j in range(n):
                    if not done[j]:
                        reached = length + max(cost[i, j] - row[i] - column[j], 0.0)
                        if reached < far[j]:
                            far[j], parent[j] = reached, i
    # Update the potentials: reduced costs stay at least 0, and become 0 along the path.
    for i in range(m):
        if back[i] != -2:
            row[i] += length - near[i]
    for j in range(n):
        if done[j]:
            column[j] -= length - far[j]
    # The amount is limited by the supply, the demand, and every flow that the path takes back.
    moved, j = min(supply[start], demand[end]), end
    while back[parent[j]] >= 0:
        j, i = back[parent[j]], parent[j]
        moved = min(moved, flow[i, j])
    supply[start] -= moved
    demand[end] -= moved
    # Walk the path back from its end: add flow from source to sink, and take it back from sink to source.
    j = end
    while True:
        i = parent[j]
        flow[i, j] += moved
        if back[i] < 0:
            break
        j = back[i]
        flow[i, j] -= moved
