"""Cosines to the last bit: float64 sums of float32 products in one fixed order, whoever asks and however many.

A product of two float32 numbers is exact in float64, so a processor that fuses it with the addition gives the same
bits. The order of additions is written out below; nothing else is rounded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.sources.base import Pooling
from relabel.sources.ngrams.kernels import jit

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
PAIRED, MAX, MEAN = 0, 1, 2
CODES: dict[Pooling, int] = {"paired": PAIRED, "max": MAX, "mean": MEAN}
LANES = 32  # running sums of a dot product: enough to keep the widest vector registers busy


class Exact(NamedTuple):
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
    exact = Exact(np.ascontiguousarray(vectors), sets.indptr, places, np.asarray(candidates, np.int64), CODES[pooling])
    _score_pairs(exact, out)
    return out


@intrinsic  # type: ignore[untyped-decorator]
def _touch(typing: Any, address: Any) -> Any:  # noqa: ARG001
    """Have the processor fetch the line of memory at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, *[ir.IntType(32)] * 3])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, everywhere, data = (ir.Constant(ir.IntType(32), x) for x in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(values[0], pointer), read, everywhere, data])
        return context.get_dummy_value()

    return types.void(types.uintp), generate


@jit
def prefetch(vectors: F4, at: int) -> None:
    """Begin to fetch a vector: they lie all over memory, and waiting for one takes longer than to score it."""
    start = np.uintp(vectors.ctypes.data) + np.uintp(at) * np.uintp(4 * vectors.shape[1])
    for line in range(0, 4 * vectors.shape[1], 64):
        _touch(start + np.uintp(line))


@jit
def dot(a: F4, b: F4, lanes: F8) -> float:
    """Sum a[d] * b[d]: one running sum for every d modulo `LANES`, then halves added to halves, (LANES,) float64."""
    lanes[:] = 0.0
    whole = len(a) - len(a) % LANES
    for start in range(0, whole, LANES):
        x, y = a[start : start + LANES], b[start : start + LANES]
        for lane in range(LANES):
            lanes[lane] += np.float64(x[lane]) * np.float64(y[lane])
    for d in range(whole, len(a)):
        lanes[d - whole] += np.float64(a[d]) * np.float64(b[d])
    half = LANES // 2
    while half:
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half //= 2
    return lanes[0]  # type: ignore[no-any-return]


@jit
def score(exact: Exact, i: int, j: int, lanes: F8) -> float:
    """Score set i against candidate j; NaN where a vector that counts is not finite."""
    other = exact.vectors[exact.candidates[j]]
    lo, hi = exact.indptr[i], exact.indptr[i + 1]
    total = dot(exact.vectors[exact.places[lo]], other, lanes)
    if exact.pooling == PAIRED or hi == lo + 1:
        return total
    for r in range(lo + 1, hi):
        one = dot(exact.vectors[exact.places[r]], other, lanes)
        if exact.pooling == MEAN:
            total += one
        elif one > total or one != one:
            total = one
        if total != total:
            return total
    return total / (hi - lo) if exact.pooling == MEAN else total


@jit
def _score_pairs(exact: Exact, out: F8) -> None:
    lanes = np.empty(LANES)
    for i in range(len(out)):
        out[i] = score(exact, i, i, lanes)
