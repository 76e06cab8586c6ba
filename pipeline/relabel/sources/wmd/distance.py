"""Word mover's distance of pairs of bags of words: exact, compiled.

Kusner, Sun, Kolkin, Weinberger: "From Word Embeddings to Document Distances", ICML 2015, eq. 1.

Mass of words that both bags contain stays in place: the ground distance is a metric, so an optimal plan exists that
never moves mass both out of and into the same word. The rest is a smaller transportation problem, and a bag's distance
to itself is exactly 0. Supplies and demands are integers (count / total, times both totals). So every step of the
solver moves at least one unit, and the solver needs no tolerance to end. Costs are float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.core.numeric.threads import run_chunks

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
_PAIRS = 4096  # pairs per task of a thread


class Bags(NamedTuple):
    """N captions as bags of words that have a vector, with T (caption, word) entries.

    Attributes
    ----------
    indptr : (N + 1,) int64
    words : (T,) int32
        Caption n has the words ``words[indptr[n]:indptr[n + 1]]``, ascending and distinct.
    counts : (T,) int64
        Occurrences of each word.
    totals : (N,) int64
        Sum of the counts of each caption; 0 if none of its words has a vector.
    """

    indptr: I8
    words: I4
    counts: I8
    totals: I8

    @classmethod
    def of(cls, indptr: I8, words: I4, counts: NDArray[np.integer]) -> Bags:
        """Make bags from CSR rows of words and counts.

        Examples
        --------
        >>> import numpy as np
        >>> from relabel.sources.wmd.distance import Bags
        >>> Bags.of(np.array([0, 2, 3]), np.array([0, 4, 4]), np.array([1, 2, 1])).totals
        array([3, 1])
        """
        occurrences = np.ascontiguousarray(counts, np.int64)
        sums = np.concatenate([[0], np.cumsum(occurrences)])
        words = np.ascontiguousarray(words, np.int32)
        return cls(np.ascontiguousarray(indptr, np.int64), words, occurrences, np.diff(sums[indptr]).astype(np.int64))

    def with_one(self, words: I4, counts: I8) -> Bags:
        """Return N + 1 bags, the last of which has these words."""
        indptr = np.append(self.indptr, self.indptr[-1] + len(words))
        return Bags.of(indptr, np.append(self.words, words), np.append(self.counts, counts))


def distances(bags: Bags, vectors: F8, left: I8, right: I8, threads: int = 1) -> F8:
    """Compute the word mover's distances of P pairs of captions.

    The bits are the same for (a, b) and (b, a), and for any number of threads.

    Parameters
    ----------
    bags : Bags
    vectors : (V, D) float64
        Vectors of all words.
    left, right : (P,) int64
        Captions by number.
    threads : int

    Returns
    -------
    (P,) float64 in [0, inf]; infinite if a bag is empty.

    Examples
    --------
    Word 0 lies at the origin, word 1 at distance 3 and word 2 at distance 4 from it:

    >>> import numpy as np
    >>> from relabel.sources.wmd.distance import Bags, distances
    >>> vectors = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    >>> bags = Bags.of(np.array([0, 2, 4]), np.array([0, 1, 0, 2]), np.array([1, 1, 1, 1]))
    >>> distances(bags, vectors, np.array([0, 0]), np.array([0, 1]))  # half of the mass moves from word 1 to word 2
    array([0. , 2.5])
    """
    out = np.empty(len(left))
    run_chunks(
        lambda lo, hi: _distances(bags, vectors, left[lo:hi], right[lo:hi], out[lo:hi]), len(out), threads, _PAIRS
    )
    return out


@jit
def _distances(bags: Bags, vectors: F8, left: I8, right: I8, out: F8) -> None:
    """Fill `out`, (P,), with the distances of pairs."""
    for p in range(len(out)):
        out[p] = distance(bags, vectors, left[p], right[p])


@jit
def distance(bags: Bags, vectors: F8, a: int, b: int) -> float:
    """Compute the word mover's distance of two bags."""
    if bags.totals[a] == 0 or bags.totals[b] == 0:
        return np.inf
    if not _in_canonical_order(bags, a, b):  # one orientation per pair, so both orders give the same bits
        a, b = b, a
    words, counts = bags.words, bags.counts
    i, stop_i = bags.indptr[a], bags.indptr[a + 1]
    j, stop_j = bags.indptr[b], bags.indptr[b + 1]
    sources, supply = np.empty((2, stop_i - i), np.int64)
    sinks, demand = np.empty((2, stop_j - j), np.int64)
    m = n = 0
    # Merge the two ascending lists of words. The difference of a word's masses is a supply or a demand. Masses are
    # scaled by both totals, so they are integers with equal sums.
    while i < stop_i or j < stop_j:
        of_a = of_b = np.int64(0)
        at_a, at_b = i, j
        if j == stop_j or (i < stop_i and words[i] <= words[j]):
            of_a = counts[i] * bags.totals[b]
        if i == stop_i or (j < stop_j and words[j] <= words[i]):
            of_b = counts[j] * bags.totals[a]
        i += int(of_a > 0)
        j += int(of_b > 0)
        if of_a > of_b:
            sources[m], supply[m] = words[at_a], of_a - of_b
            m += 1
        elif of_b > of_a:
            sinks[n], demand[n] = words[at_b], of_b - of_a
            n += 1
    if m == 0:  # equal masses everywhere: nothing moves
        return 0.0
    cost = np.empty((m, n))
    for i in range(m):
        for j in range(n):
            cost[i, j] = euclidean(vectors, sources[i], sinks[j])
    return transport(cost, supply[:m], demand[:n]) / (float(bags.totals[a]) * float(bags.totals[b]))


@jit
def _in_canonical_order(bags: Bags, a: int, b: int) -> bool:
    """Return whether bag a comes first or equals bag b, by number of words, then words, then counts."""
    start_a, start_b = bags.indptr[a], bags.indptr[b]
    size = bags.indptr[a + 1] - start_a
    if size != bags.indptr[b + 1] - start_b:
        return bool(size < bags.indptr[b + 1] - start_b)
    for e in range(size):
        if bags.words[start_a + e] != bags.words[start_b + e]:
            return bool(bags.words[start_a + e] < bags.words[start_b + e])
    for e in range(size):
        if bags.counts[start_a + e] != bags.counts[start_b + e]:
            return bool(bags.counts[start_a + e] < bags.counts[start_b + e])
    return True


@jit
def euclidean(vectors: F8, a: int, b: int) -> float:
    """Compute the Euclidean distance of two words; the bits are the same for (a, b) and (b, a), and in every caller."""
    x, y = vectors[a], vectors[b]
    # Eight running sums in a fixed order: with a single one, each addition would wait for the last.
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    unrolled = len(x) - len(x) % 8
    for d in range(0, unrolled, 8):
        s0 += (x[d] - y[d]) * (x[d] - y[d])
        s1 += (x[d + 1] - y[d + 1]) * (x[d + 1] - y[d + 1])
        s2 += (x[d + 2] - y[d + 2]) * (x[d + 2] - y[d + 2])
        s3 += (x[d + 3] - y[d + 3]) * (x[d + 3] - y[d + 3])
        s4 += (x[d + 4] - y[d + 4]) * (x[d + 4] - y[d + 4])
        s5 += (x[d + 5] - y[d + 5]) * (x[d + 5] - y[d + 5])
        s6 += (x[d + 6] - y[d + 6]) * (x[d + 6] - y[d + 6])
        s7 += (x[d + 7] - y[d + 7]) * (x[d + 7] - y[d + 7])
    for d in range(unrolled, len(x)):
        s0 += (x[d] - y[d]) * (x[d] - y[d])
    return float(np.sqrt(((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))))


@jit
def transport(cost: F8, supply: I8, demand: I8) -> float:
    """Compute the least total cost of moving all supply to all demand by successive shortest paths.

    Node potentials keep reduced costs at 0 or more, so Dijkstra's algorithm over the dense matrix finds each path
    (Ahuja, Magnanti, Orlin: "Network Flows", 1993, section 9.7; Edmonds and Karp, J. ACM 1972).

    Parameters
    ----------
    cost : (m, n) float64
        0 or more.
    supply, demand : (m,) and (n,) int64
        Positive, with equal sums. Overwritten.

    Returns
    -------
    float
        Sum of flow times cost, in the units of the supplies.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.wmd.distance import transport
    >>> cost = np.array([[1.0, 5.0], [2.0, 4.0]])
    >>> transport(cost, np.array([2, 1]), np.array([1, 2]))  # 1 * 1 + 1 * 5 + 1 * 4
    10.0
    """
    m, n = cost.shape
    total = 0.0
    if m == 1 or n == 1:  # there is only one plan
        for i in range(m):
            for j in range(n):
                total += cost[i, j] * min(supply[i], demand[j])
        return total
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
    for i in range(m):
        for j in range(n):
            if flow[i, j] > 0:
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
