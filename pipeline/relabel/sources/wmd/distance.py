"""Exact word mover's distance of bags of words and of sets of bags, compiled.

Kusner, Sun, Kolkin, Weinberger: "From Word Embeddings to Document Distances", ICML 2015, eq. 1. Sets: Kim et al., "Deep
Metric Learning Beyond Binary Supervision", CVPR 2019, eq. 13.

Supplies and demands are integers (count / total, times both totals). Every step of the solver therefore moves at least
one unit, and the solver terminates without a tolerance. Costs are float64.

The distance is infinite if a caption has no word with a vector. In a set, such a caption counts as the mean of the
other captions. Dropping it would decrease the sum of distances, and an infinite value would make the distance of the
set infinite.
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
_PAIRS = 1024  # pairs per chunk of a thread
_FIRST, _MAX, _MEAN, _SET = 0, 1, 2, 3
CODES: dict[Pooling, int] = {"first": _FIRST, "max": _MAX, "mean": _MEAN, "set": _SET}
"""Codes of poolings in the kernels. The names refer to relevance: `max` takes the minimum distance."""


class Bags(NamedTuple):
    """N captions as bags of words that have a vector, with T (caption, word) entries.

    `indptr`: (N + 1,) int64.
    `words`: (T,) int32; caption n has the words ``words[indptr[n]:indptr[n + 1]]``, ascending and distinct.
    `counts`: (T,) int64; number of occurrences of each word.
    `totals`: (N,) int64; sum of the counts of each caption, or 0 if no word has a vector.
    """

    indptr: I8
    words: I4
    counts: I8
    totals: I8

    @classmethod
    def of(cls, indptr: I8, words: NDArray[np.integer], counts: NDArray[np.integer]) -> Bags:
        """Create bags from CSR rows of words and counts."""
        occurrences = np.ascontiguousarray(counts, np.int64)
        sums = np.concatenate([[0], np.cumsum(occurrences)])
        ids, starts = np.ascontiguousarray(words, np.int32), np.ascontiguousarray(indptr, np.int64)
        return cls(starts, ids, occurrences, np.diff(sums[indptr]).astype(np.int64))

    def take(self, captions: NDArray[np.integer]) -> Bags:
        """Select the bags of captions by number."""
        sizes = self.indptr[captions + 1] - self.indptr[captions]
        entries = ranges(self.indptr[captions], sizes)
        return Bags(indptr_of(sizes), self.words[entries], self.counts[entries], self.totals[captions])


def distances(
    bags: Bags, vectors: F8, left: References, right: References, pooling: Pooling = "first", threads: int = 1
) -> F8:
    """Compute the symmetric distances of P pairs of sets of captions.

    Pooling `first` takes the distance of the first captions, `max` the minimum over all pairs of captions, and `mean`
    their mean. `set` is the set distance W(X, Y) = sum_x min_y W(x, y) + sum_y min_x W(x, y).

    The result is bit-identical for (a, b) and (b, a) if both are single captions, and for any number of threads.

    `vectors`: (V, D) float64; vectors of all words. `left`, `right`: P non-empty sets of caption numbers each. Returns
    (P,) float64 in [0, inf]; infinite if all captions of a set have empty bags.
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
    """Pool the distances of N captions to R references over the references: `distances`, (N, R), to `out`, (N,)."""
    for n in range(len(out)):
        out[n] = _pool(distances[n].reshape((-1, 1)), pooling)


@jit
def _pool(cells: F8, pooling: int) -> float:
    """Pool the (m, n) distances of the captions of two sets."""
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
    """Sum the minimum of each row. A row of infinite distances counts as the mean of the others."""
    total, finite = 0.0, 0
    for i in range(cells.shape[0]):
        nearest = cells[i].min()
        if nearest < np.inf:
            total, finite = total + nearest, finite + 1
    return np.inf if finite == 0 else total * (cells.shape[0] / finite)


@jit
def _distance(bags: Bags, vectors: F8, a: int, b: int) -> float:
    """Compute the word mover's distance of two bags."""
    if bags.totals[a] == 0 or bags.totals[b] == 0:
        return np.inf
    if not _in_canonical_order(bags, a, b):  # so both orders give the same bits
        a, b = b, a
    sources, sinks = slice(bags.indptr[a], bags.indptr[a + 1]), slice(bags.indptr[b], bags.indptr[b + 1])
    x, y = bags.words[sources], bags.words[sinks]
    cost = np.empty((len(x), len(y)))
    for i in range(len(x)):
        for j in range(len(y)):
            cost[i, j] = _euclidean(vectors[x[i]], vectors[y[j]])
    # Masses are scaled by both totals to integers with equal sums.
    moved = transport(cost, bags.counts[sources] * bags.totals[b], bags.counts[sinks] * bags.totals[a])
    return moved / (float(bags.totals[a]) * float(bags.totals[b]))


@jit
def _in_canonical_order(bags: Bags, a: int, b: int) -> bool:
    """Return whether bag a sorts before bag b, or is equal, by words and counts."""
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
    """Compute the Euclidean distance of two vectors, bit-identical for (x, y) and (y, x)."""
    total = 0.0
    for d in range(len(x)):
        total += (x[d] - y[d]) * (x[d] - y[d])
    return float(np.sqrt(total))


@jit
def transport(cost: F8, supply: I8, demand: I8) -> float:
    """Compute the minimum total cost of moving all supply to all demand by successive shortest paths.

    Node potentials keep reduced costs non-negative, so Dijkstra's algorithm on the dense matrix finds each path
    (Ahuja, Magnanti, Orlin: "Network Flows", 1993, section 9.7; Edmonds and Karp, J. ACM 1972).

    `cost`: (m, n) float64; non-negative. `supply`, `demand`: (m,) and (n,) int64; positive, with equal sums;
    overwritten. Returns the sum of flow times cost, in the units of the supplies.
    """
    m, n = cost.shape
    flow, row, column = np.zeros((m, n), np.int64), np.empty(m), np.empty(n)
    # Initial potentials with non-negative reduced costs and one zero per row. An arc with reduced cost 0 is a shortest
    # path, so flow along it is optimal.
    for j in range(n):
        column[j] = cost[:, j].min()
    for i in range(m):
        nearest = np.argmin(cost[i] - column)
        row[i] = cost[i, nearest] - column[nearest]
        moved = min(supply[i], demand[nearest])
        flow[i, nearest] = moved
        supply[i] -= moved
        demand[nearest] -= moved
    # Terminates, because each augmentation moves at least one unit of the integer supplies.
    for i in range(m):
        while supply[i] > 0:
            _augment(cost, flow, supply, demand, row, column, i)
    # Summed at the end instead of path by path, for a fixed order of additions.
    total = 0.0
    for i in range(m):
        for j in range(n):
            total += flow[i, j] * cost[i, j]
    return total


@jit
def _augment(cost: F8, flow: I8, supply: I8, demand: I8, row: F8, column: F8, start: int) -> None:
    """Send as much flow as possible along the shortest path from source `start` to a sink with remaining demand."""
    m, n = cost.shape
    # Distances of sources (`near`) and sinks (`far`) from the start. The predecessor of a source is a sink (-1 for the
    # start, -2 for unreached sources), and that of a sink is a source.
    near, back = np.zeros(m), np.full(m, -2)
    far, parent, done = np.empty(n), np.full(n, start), np.zeros(n, np.bool_)
    back[start] = -1
    for j in range(n):
        far[j] = max(cost[start, j] - row[start] - column[j], 0.0)  # rounding may give a small negative value
    while True:
        # The unfinished sink with the minimum distance is final, because reduced costs are non-negative (Dijkstra).
        end, length = -1, np.inf
        for j in range(n):
            if not done[j] and far[j] < length:
                end, length = j, far[j]
        if demand[end] > 0:
            break
        done[end] = True
        # Arcs with flow have reduced cost 0, so flow into the sink can be returned at no cost. Its sources are reached
        # at the distance of the sink.
        for i in range(m):
            if flow[i, end] > 0 and back[i] == -2:
                back[i], near[i] = end, length
                for j in range(n):
                    if not done[j]:
                        reached = length + max(cost[i, j] - row[i] - column[j], 0.0)
                        if reached < far[j]:
                            far[j], parent[j] = reached, i
    # Update the potentials: reduced costs stay non-negative and become 0 along the path.
    for i in range(m):
        if back[i] != -2:
            row[i] += length - near[i]
    for j in range(n):
        if done[j]:
            column[j] -= length - far[j]
    # The amount is limited by the supply, the demand, and the flows that the path returns.
    moved, j = min(supply[start], demand[end]), end
    while back[parent[j]] >= 0:
        j, i = back[parent[j]], parent[j]
        moved = min(moved, flow[i, j])
    supply[start] -= moved
    demand[end] -= moved
    # Follow the path from its end: add flow on arcs from source to sink, and subtract it on reverse arcs.
    j = end
    while True:
        i = parent[j]
        flow[i, j] += moved
        if back[i] < 0:
            break
        j = back[i]
        flow[i, j] -= moved
