"""Low-precision vectors, and a proved bound of the error of their products.

A vector a is held as a~ = scale * values: int8 values, whose products are exact integers, or float32. By the inequality
of Cauchy and Schwarz::

    |a.b - a~.b~| <= |a - a~| |b| + |a~| |b - b~|

The norms are computed, not estimated. See docs/internals/exact-search.md for the proof.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit

Screen = Literal["int8", "float32"]
F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
_ROUND_UP = 1 + 1e-9  # covers the float64 rounding of the norms
_SMALLEST = 1e-20  # a vector without a larger component is held as zeros
_CHUNK = 1 << 12  # vectors converted at a time


class Screened(NamedTuple):
    """n vectors in low precision.

    `values`: tensor, (n, D) int8 or float32. `scale`: (n,) float64.
    `norm`, `size`, `error`: (n,) float64; upper bounds of the norms of the vectors, of their low-precision copies, and
        of the differences.
    """

    values: Any
    scale: F8
    norm: F8
    size: F8
    error: F8

    def part(self, rows: slice | NDArray[np.int64]) -> Screened:
        """Return some of the vectors."""
        return Screened(*(column[rows] for column in self))


@cache
def fastest_screen() -> Screen:
    """Return int8 where the processor multiplies it fast, and float32 elsewhere. No result depends on the choice."""
    import torch

    # The function is private: torch has no public one.
    vnni = getattr(torch.cpu, "_is_vnni_supported", None)
    return "int8" if vnni is not None and vnni() else "float32"


def screen(vectors: F4 | F8, kind: Screen, rows: NDArray[np.int64] | None = None) -> Screened:
    """Convert finite vectors, (N, D), to low precision: some rows, or all."""
    import torch

    rows = np.arange(len(vectors)) if rows is None else rows
    values = torch.empty((len(rows), vectors.shape[1]), dtype=getattr(torch, kind))
    out = Screened(values, *np.ones((4, len(rows))))
    # Chunk by chunk, so that few rows are copied at a time.
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        scale, norm, size, error = (column[part] for column in out[1:])
        _convert(vectors[rows[part]], values.numpy()[part], scale, norm, size, error, kind == "int8")
    return out


def multiply(left: Any, right: Any, out: Any) -> NDArray[Any]:
    """Multiply (m, D) by (n, D) values; return (m, n) int32 or float32, a view of the beginning of `out`."""
    import torch

    # A tile at the edge takes the first m * n numbers of the buffer, so that it is contiguous as well.
    tile = out.reshape(-1)[: len(left) * len(right)].reshape(len(left), len(right))
    (torch._int_mm if left.dtype == torch.int8 else torch.mm)(left, right.T, out=tile)
    return tile.numpy()  # type: ignore[no-any-return]


def empty_tile(kind: Any, numbers: int) -> Any:
    """Allocate the products of values of a torch dtype."""
    import torch

    return torch.empty(numbers, dtype=torch.int32 if kind == torch.int8 else torch.float32)


def error_bound(queries: Screened, candidates: Screened, addends: int) -> F8:
    """Bound the part of the error of a score that is the same for all candidates, (n,) float64.

    The other part is ``queries.size * candidates.error``. `addends`: products that are summed for a score.
    """
    norm, size = (float(column.max(initial=0.0)) for column in (candidates.norm, candidates.size))
    bound = queries.error * norm
    if candidates.values.dtype.is_floating_point:
        # Twice Higham's bound of a float32 sum in any order: libraries choose the order.
        bound = bound + 2 * (addends + 8) * 2.0**-24 * queries.size * size
    # The exact score is a float64 sum, and limits are compared in float32.
    return bound + (2 * (addends + 8) * 2.0**-53 + 2.0**-20) * queries.norm * norm + 1e-30


@jit
def _convert(vectors: F4 | F8, values: Any, scale: F8, norm: F8, size: F8, error: F8, integers: bool) -> None:
    for i in range(len(vectors)):
        largest = 0.0
        for d in range(vectors.shape[1]):
            largest = max(largest, abs(np.float64(vectors[i, d])))
        unit = largest / 127.0 if integers and largest > _SMALLEST else 1.0
        exact_squares = size_squares = error_squares = 0.0
        for d in range(vectors.shape[1]):
            x = np.float64(vectors[i, d])
            values[i, d] = np.rint(x / unit) if integers else x
            y = np.float64(values[i, d]) * unit
            exact_squares += x * x
            size_squares += y * y
            error_squares += (x - y) * (x - y)
        scale[i] = unit
        # Rounded up, so that each is an upper bound of the true norm.
        norm[i] = np.sqrt(exact_squares) * _ROUND_UP
        size[i] = np.sqrt(size_squares) * _ROUND_UP
        error[i] = np.sqrt(error_squares) * _ROUND_UP
