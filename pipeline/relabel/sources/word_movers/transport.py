"""The transportation problem of two small bags, solved exactly: successive shortest paths with whole-number flows.

Supplies and demands are whole numbers, so that every step moves at least one unit and the end is reached exactly; costs
are float64. Potentials keep reduced costs at 0 or more, hence Dijkstra's search finds the shortest path, over a dense
matrix (Ahuja, Magnanti, Orlin: "Network Flows", 1993, section 9.7; Edmonds and Karp, J. ACM 1972).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import jit

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]


class Room(NamedTuple):
    """What one thread solves a problem in, for bags of at most n words.

    Attributes
    ----------
    cost : (n, n) float64
        From source i to sink j.
    flow : (n, n) int64
    supply, demand : (n,) int64
        What is left of them.
    row, column : (n,) float64
        Potentials of sources and sinks.
    far, near : (n,) float64
        Distances of sinks and sources from where a search began.
    parent : (n,) int64
        The source before each sink on its shortest path.
    back : (n,) int64
        The sink before each source; -1 where the search began, -2 where it has not been.
    done : (n,) bool
        Whether a sink's distance is final.
    """

    cost: F8
    flow: I8
    supply: I8
    demand: I8
    row: F8
    column: F8
    far: F8
    near: F8
    parent: I8
    back: I8
    done: NDArray[np.bool_]

    @classmethod
    def of(cls, n: int) -> Room:
        """Make room for bags of at most n words."""
        whole, real = np.zeros((4, n), np.int64), np.zeros((4, n))
        return cls(
            cost=np.zeros((n, n)),
            flow=np.zeros((n, n), np.int64),
            supply=whole[0],
            demand=whole[1],
            row=real[0],
            column=real[1],
            far=real[2],
            near=real[3],
            parent=whole[2],
            back=whole[3],
            done=np.zeros(n, np.bool_),
        )


@jit
def transport(room: Room, m: int, n: int) -> float:
    """Least total cost of moving all supply to all demand.

    Parameters
    ----------
    room : Room
        `cost` (0 or more), `supply` and `demand` are given, of one positive sum; the latter two are used up.
    m, n : int
        Sources and sinks.

    Returns
    -------
    float
        Sum of flow times cost, in the units of the supplies.
    """
    cost, flow, supply, demand = room.cost, room.flow, room.supply, room.demand
    if m == 1 or n == 1:
        total = 0.0
        for i in range(m):
            for j in range(n):
                total += cost[i, j] * min(supply[i], demand[j])
        return total
    row, column = room.row, room.column
    for j in range(n):
        least = cost[0, j]
        for i in range(1, m):
            least = min(least, cost[i, j])
        column[j] = least
    for i in range(m):
        least, at = np.inf, 0
        for j in range(n):
            flow[i, j] = 0
            reduced = cost[i, j] - column[j]
            if reduced < least:
                least, at = reduced, j
        row[i] = least
        some = min(supply[i], demand[at])  # a reduced cost of 0: a shortest path of one step
        flow[i, at] = some
        supply[i] -= some
        demand[at] -= some
    for i in range(m):
        while supply[i] > 0:
            _augment(room, i, m, n)
    total = 0.0
    for i in range(m):
        for j in range(n):
            if flow[i, j] > 0:
                total += flow[i, j] * cost[i, j]
    return total


@jit
def _augment(room: Room, start: int, m: int, n: int) -> None:
    """Send what fits along the shortest path from a source to any sink that still wants something."""
    cost, flow, row, column, far = room.cost, room.flow, room.row, room.column, room.far
    near, parent, back, done = room.near, room.parent, room.back, room.done
    for i in range(m):
        back[i] = -2
    back[start], near[start] = -1, 0.0
    for j in range(n):
        far[j], parent[j], done[j] = max(cost[start, j] - row[start] - column[j], 0.0), start, False
    end, length = -1, 0.0
    while end < 0:
        at, length = -1, np.inf
        for j in range(n):
            if not done[j] and far[j] < length:
                at, length = j, far[j]
        if room.demand[at] > 0:
            end = at
            break
        done[at] = True
        for i in range(m):
            if flow[i, at] > 0 and back[i] == -2:
                back[i], near[i] = at, length
                for j in range(n):
                    if not done[j]:
                        reached = length + max(cost[i, j] - row[i] - column[j], 0.0)
                        if reached < far[j]:
                            far[j], parent[j] = reached, i
    for i in range(m):
        if back[i] != -2:
            row[i] += length - near[i]
    for j in range(n):
        if done[j]:
            column[j] -= length - far[j]
    some, j = min(room.supply[start], room.demand[end]), end
    while back[parent[j]] >= 0:
        j, i = back[parent[j]], parent[j]
        some = min(some, flow[i, j])
    room.supply[start] -= some
    room.demand[end] -= some
    j = end
    while True:
        i = parent[j]
        flow[i, j] += some
        if back[i] < 0:
            break
        j = back[i]
        flow[i, j] -= some
