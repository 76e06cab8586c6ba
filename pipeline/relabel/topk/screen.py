"""Low-precision vectors, and a proven bound on the error of their products.

A vector a is approximated by a~ = scale * values, with values in int8 (their products are exact integers) or float32.
By the Cauchy-Schwarz inequality::

    |a.b - a~.b~| <= |a - a~| |b| + |a~| |b - b~|

The norms are computed, not estimated. The proof is in docs/internals/exact-search.md.
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
_SMALLEST = 1e-20  # a vector without a larger component is converted to zeros
_CHUNK = 1 << 12  # vectors per conversion


class LowPrecision(NamedTuple):
    """n vectors in low precision.

    `values`: tensor, (n, D) int8 or float32. `scale`: (n,) float64.
    `norm`, `size`, `error`: (n,) float64; upper bounds on the norms of the vectors, of their low-precision copies, and
        of the differences.
    """

    values: Any
    scale: F8
    norm: F8
    size: F8
    error: F8

    def take(self, rows: slice | NDArray[np.int64]) -> LowPrecision:
        """Select vectors by row."""
        return LowPrecision(*(column[rows] for column in self))


@cache
def fastest_screen() -> Screen:
    """Return int8 if the processor has fast int8 products, otherwise float32. The choice does not change results."""
    import torch

    # torch has no public function for this test.
    vnni = getattr(torch.cpu, "_is_vnni_supported", None)
    return "int8" if vnni is not None and vnni() else "float32"


def screen(vectors: F4 | F8, kind: Screen, rows: NDArray[np.int64] | None = None) -> LowPrecision:
    """Convert finite vectors to low precision. `vectors`: (N, D). `rows`: the rows to convert, by default all."""
    import torch

    rows = np.arange(len(vectors)) if rows is None else rows
    values = torch.empty((len(rows), vectors.shape[1]), dtype=getattr(torch, kind))
    out = LowPrecision(values, *np.ones((4, len(rows))))
    # In chunks, because `vectors[rows]` is a copy.
    for start in range(0, len(rows), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        scale, norm, size, error = (column[chunk] for column in out[1:])
        _convert(vectors[rows[chunk]], values.numpy()[chunk], scale, norm, size, error, kind == "int8")
    return out


def multiply(left: Any, right: Any, out: Any) -> NDArray[Any]:
    """Multiply (m, D) by (n, D) values. Returns (m, n) int32 or float32, a view of the beginning of `out`."""
    import torch

    # Tiles at the edge use the first m * n numbers of the buffer, which keeps them contiguous.
    tile = out.reshape(-1)[: len(left) * len(right)].reshape(len(left), len(right))
    (torch._int_mm if left.dtype == torch.int8 else torch.mm)(left, right.T, out=tile)
    return tile.numpy()  # type: ignore[no-any-return]


def empty_tile(kind: Any, numbers: int) -> Any:
    """Allocate an output of `multiply` for values of the torch dtype `kind`."""
    import torch

    return torch.empty(numbers, dtype=torch.int32 if kind == torch.int8 else torch.float32)


def error_bound(queries: LowPrecision, candidates: LowPrecision, addends: int) -> F8:
    """Bound the component of the score error that is the same for all candidates: (n,) float64.

    The other component is ``queries.size * candidates.error``. `addends`: number of products summed for a score.
    """
    norm, size = (float(column.max(initial=0.0)) for column in (candidates.norm, candidates.size))
    bound = queries.error * norm
    if candidates.values.dtype.is_floating_point:
        # Twice Higham's bound for float32 sums in any order, because the order depends on the library.
        bound = bound + 2 * (addends + 8) * 2.0**-24 * queries.size * size
    # Rounding of the exact score, a float64 sum, and of the limits, which are compared in float32.
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
        # Rounded up to upper bounds on the true norms.
        norm[i] = np.sqrt(exact_squares) * _ROUND_UP
        size[i] = np.sqrt(size_squares) * _ROUND_UP
        error[i] = np.sqrt(error_squares) * _ROUND_UP
