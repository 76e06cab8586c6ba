"""Exact cosines: float64 sums of float32 products in one fixed order for all callers.

A product of two float32 numbers is exact in float64, so fused multiply-add instructions give the same bits. `dot`
defines the order of additions. The only other operation that rounds is the mean over a set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import FIRST, MAX, MEAN, jit, pool_next
from relabel.core.types import Pooling
from relabel.corpus import References

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
LANES = 32
"""Number of partial sums of a dot product: enough to fill the widest vector registers."""
CODES: dict[Pooling, int] = {"first": FIRST, "max": MAX, "mean": MEAN}


class Sets(NamedTuple):
    """n sets of vectors, scored by number.

    `vectors`: (N, D) float32.
    `indptr`, `members`: (n + 1,) int64 and (indptr[-1],) int64; set i consists of the vectors at
        ``members[indptr[i]:indptr[i + 1]]``. A candidate is a set of one vector.
    `pooling`: one of `CODES`.
    """

    vectors: F4
    indptr: I8
    members: I8
    pooling: int

    @classmethod
    def single(cls, vectors: F4, members: I8) -> Sets:
        """Create one set per vector."""
        return cls(vectors, np.arange(len(members) + 1), members, FIRST)

    def take(self, rows: I8) -> Sets:
        """Select sets by number."""
        sets = References(self.indptr, self.members).take(rows)  # type: ignore[arg-type]
        return Sets(self.vectors, sets.indptr, sets.rows, self.pooling)  # type: ignore[arg-type]


def score_pairs(vectors: F4, sets: References, candidates: I8, pooling: Pooling) -> F8:
    """Score P pairs of a set and a candidate.

    `vectors`: (N, D) float32. `sets`: P non-empty sets of positions in `vectors`. `candidates`: (P,) int64; positions
    in `vectors`. Returns (P,) float64, with NaN if a vector that the score depends on is not finite.
    """
    members = np.asarray(sets.rows, np.int64)
    # The compiled kernel does not check bounds.
    for positions in (members, candidates):
        if len(positions) and not (positions.min() >= 0 and positions.max() < len(vectors)):
            raise IndexError(
                f"positions {positions.min()} to {positions.max()} are out of range for {len(vectors)} vectors"
            )
    out = np.empty(len(sets))
    numbers = np.asarray(candidates, np.int64)
    _score_pairs(Sets(np.ascontiguousarray(vectors), sets.indptr, members, CODES[pooling]), numbers, out)
    return out


@jit
def dot(vectors: F4, a: int, b: int) -> float:
    """Return the dot product of rows a and b.

    Lane l sums the products of all d with ``d % LANES == l``, in ascending d. The lanes are then added in halves: lane
    l to lane ``l + LANES / 2``, and so on. The order depends only on the width.
    """
    x, y, width, lanes = vectors[a], vectors[b], vectors.shape[1], np.zeros(LANES)
    full = width - width % LANES
    for d in range(0, full, LANES):
        for lane in range(LANES):
            lanes[lane] += np.float64(x[d + lane]) * np.float64(y[d + lane])
    for d in range(full, width):
        lanes[d - full] += np.float64(x[d]) * np.float64(y[d])
    half = LANES // 2
    while half:
        for lane in range(half):
            lanes[lane] += lanes[half + lane]
        half //= 2
    return float(lanes[0])


@jit
def score(vectors: F4, members: I8, lo: int, hi: int, candidate: int, pooling: int) -> float:
    """Score the set ``members[lo:hi]`` against one vector; NaN if a vector that the score depends on is not finite.

    Takes arrays instead of Sets, because numba's reference counts for the arrays of a tuple cost more than a score.
    """
    total: float = dot(vectors, members[lo], candidate)
    # `first` uses only the first member, and a single member does not need pooling.
    if pooling == FIRST or hi == lo + 1:
        return total
    for r in range(lo + 1, hi):
        total = pool_next(total, dot(vectors, members[r], candidate), pooling)
    return total / (hi - lo) if pooling == MEAN else total


@jit
def _score_pairs(sets: Sets, candidates: I8, out: F8) -> None:
    # Unpacked only once; see `score`.
    vectors, indptr, members, pooling = sets
    for i in range(len(out)):
        out[i] = score(vectors, members, indptr[i], indptr[i + 1], candidates[i], pooling)
