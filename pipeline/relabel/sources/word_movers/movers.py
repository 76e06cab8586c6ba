"""Word mover's distance of pairs of bags, exact.

Kusner, Sun, Kolkin, Weinberger: "From Word Embeddings to Document Distances", ICML 2015, eq. 1.

Words that both bags hold stay where they are: the ground distance is a metric, so that some best plan moves no mass out
of a word and other mass into it. What is left is a smaller problem, and a bag's distance to itself is 0 to the bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import jit
from relabel.sources.ngrams.threads import share
from relabel.sources.word_movers.bags import Bags, Ground, between
from relabel.sources.word_movers.transport import Room, transport

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
_TOGETHER = 4096  # pairs a thread takes at once


def distances(bags: Bags, ground: Ground, left: I8, right: I8, threads: int = 1) -> F8:
    """Word mover's distances of P pairs, (P,) float64 in [0, inf]; infinite where a bag is empty.

    The same bits for (a, b) and (b, a), and for any number of threads.

    Parameters
    ----------
    bags : Bags
    ground : Ground
    left, right : (P,) int64
        Captions by number.
    threads : int
    """
    out = np.empty(len(left))

    def work(lo: int, hi: int) -> None:
        room = Room.of(bags.largest)
        places = np.empty((2, bags.largest), np.int64)
        _distances(bags, ground, left[lo:hi], right[lo:hi], room, places, out[lo:hi])

    share(work, len(left), threads, _TOGETHER)
    return out


@jit
def _distances(bags: Bags, ground: Ground, left: I8, right: I8, room: Room, places: I8, out: F8) -> None:
    words = bags.words
    for p in range(len(out)):
        a, b = left[p], right[p]
        m, n = residual(bags, a, b, room, places)
        if m <= 0:
            out[p] = np.inf if m < 0 else 0.0
            continue
        for i in range(m):
            for j in range(n):
                room.cost[i, j] = between(ground, words[places[0, i]], words[places[1, j]])
        out[p] = moved(bags, a, b, room, m, n)


@jit
def moved(bags: Bags, a: int, b: int, room: Room, m: int, n: int) -> float:
    """Solve what `residual` left, once the costs are there; in units of mass 1."""
    total: float = transport(room, m, n)
    return total / (float(bags.totals[a]) * float(bags.totals[b]))


@jit
def residual(bags: Bags, a: int, b: int, room: Room, places: I8) -> tuple[int, int]:
    """Take out the words that two bags share; what is left of both are supplies and demands.

    Weights are whole numbers: count / total of one bag, times both totals.

    Parameters
    ----------
    bags : Bags
    a, b : int
        Sources are of the one that `comes_first`.
    room : Room
        `supply` and `demand` are filled.
    places : (2, n) int64
        Filled: where each source's and each sink's word stands in ``bags.words``.

    Returns
    -------
    m, n : int
        Sources and sinks; 0, 0 for equal bags; -1, -1 where one is empty.
    """
    if bags.totals[a] == 0 or bags.totals[b] == 0:
        return -1, -1
    if not comes_first(bags, a, b):
        a, b = b, a
    words, counts = bags.words, bags.counts
    i, stop_i = bags.indptr[a], bags.indptr[a + 1]
    j, stop_j = bags.indptr[b], bags.indptr[b + 1]
    per_a, per_b = bags.totals[b], bags.totals[a]
    m = n = 0
    while i < stop_i or j < stop_j:
        of_a = of_b = np.int64(0)
        at_a, at_b = i, j
        if j == stop_j or (i < stop_i and words[i] <= words[j]):
            of_a = counts[i] * per_a
        if i == stop_i or (j < stop_j and words[j] <= words[i]):
            of_b = counts[j] * per_b
        if of_a > 0:
            i += 1
        if of_b > 0:
            j += 1
        if of_a > of_b:
            room.supply[m], places[0, m] = of_a - of_b, at_a
            m += 1
        elif of_b > of_a:
            room.demand[n], places[1, n] = of_b - of_a, at_b
            n += 1
    return m, n


@jit
def comes_first(bags: Bags, a: int, b: int) -> bool:
    """Order two bags by size, then words, then counts: a pair is solved one way round, whichever way it is asked."""
    start_a, start_b = bags.indptr[a], bags.indptr[b]
    size_a, size_b = bags.indptr[a + 1] - start_a, bags.indptr[b + 1] - start_b
    if size_a != size_b:
        return bool(size_a < size_b)
    for e in range(size_a):
        one, other = bags.words[start_a + e], bags.words[start_b + e]
        if one != other:
            return bool(one < other)
    for e in range(size_a):
        count, count_b = bags.counts[start_a + e], bags.counts[start_b + e]
        if count != count_b:
            return bool(count < count_b)
    return True
