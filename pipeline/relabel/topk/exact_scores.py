"""Cosines to the last bit: float64 sums of float32 products in one fixed order, whoever asks and however many.

A product of two float32 numbers is exact in float64, so a processor that fuses it with the addition gives the same
bits. The order of additions is that of `dots.dot`; nothing else is rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.topk.dot_kernel import dot

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
PAIRED, MAX, MEAN = 0, 1, 2
CODES: dict[Pooling, int] = {"paired": PAIRED, "max": MAX, "mean": MEAN}


class ExactOperands(NamedTuple):
    """Sets and candidates that can be scored by number.

    Attributes
    ----------
    vectors : (N, D) float32
    indptr, places : (Q + 1,) int64 and (indptr[-1],) int64
        Set i is the vectors ``places[indptr[i]:indptr[i + 1]]``.
    candidates : (C,) int64
        Candidate j is ``vectors[candidates[j]]``.
    pooling : int
        One of `CODES`.
    """

    vectors: F4
    indptr: I8
    places: I8
    candidates: I8
    pooling: int


def score_pairs(vectors: F4, sets: References, candidates: I8, pooling: Pooling) -> F8:
    """Score P pairs of a set and a candidate, (P,) float64.

    Parameters
    ----------
    vectors : (N, D) float32
    sets : References
        P sets of places in `vectors`, none of them empty.
    candidates : (P,) int64
        Places in `vectors`.
    pooling : "paired", "max" or "mean"

    Raises
    ------
    IndexError
        If a place is not in `vectors`.
    """
    places = np.asarray(sets.rows, np.int64)
    for some in (places, candidates):
        if len(some) and not (some.min() >= 0 and some.max() < len(vectors)):
            raise IndexError(f"places {some.min()} to {some.max()} are not all among {len(vectors)} vectors")
    out = np.empty(len(sets))
    exact = ExactOperands(
        np.ascontiguousarray(vectors), sets.indptr, places, np.asarray(candidates, np.int64), CODES[pooling]
    )
    _score_pairs(exact, out)
    return out


@jit
def score(vectors: F4, places: I8, lo: int, hi: int, other: int, pooling: int) -> float:
    """Score the set ``places[lo:hi]`` against the vector at `other`; NaN where one that counts is not finite.

    It takes no ExactOperands: to count the references of a tuple's arrays takes longer than a score.
    """
    total: float = dot(vectors, places[lo], other)
    if pooling == PAIRED or hi == lo + 1:
        return total
    for r in range(lo + 1, hi):
        one: float = dot(vectors, places[r], other)
        if pooling == MEAN:
            total += one
        elif one > total or one != one:
            total = one
        if total != total:
            return total
    return total / (hi - lo) if pooling == MEAN else total


@jit
def _score_pairs(exact: ExactOperands, out: F8) -> None:
    vectors, indptr, places, candidates, pooling = exact
    for i in range(len(out)):
        out[i] = score(vectors, places, indptr[i], indptr[i + 1], candidates[i], pooling)
