"""Low-precision matrix products with a rigorous bound of their error.

Let a~ be the vector a as it is held in low precision. By the inequality of Cauchy and Schwarz::

    |a.b - a~.b~| <= |a - a~| |b| + |a~| |b - b~|

The norms are computed, not estimated. A sum of D float32 products in any order differs from the exact sum by at most
about D 2^-24 |a~| |b~| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); the bound allows twice
that. See docs/internals/exact-search.md for the proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.core.numeric.threads import single_blas_thread

Arithmetic = Literal["bfloat16", "float32", "numpy"]
F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
_PROBE = 512  # vectors on each side of the product that is timed
_SECONDS = 0.02  # timing per arithmetic
_TINY = 1e-30  # covers products that underflow
_ROUND_UP = 1 + 1e-9  # covers the float64 rounding of the bounds themselves
_CHUNK = 1 << 12  # vectors quantized at a time


@dataclass(frozen=True, eq=False)
class QuantizedVectors:
    """n vectors in low precision, with the norms that the error bound needs.

    `values`: tensor or array, (n, D); low-precision vectors.
    `norm`, `quantized_norm`, `error_norm`: (n,) float64; upper bounds of the norms of the vectors, of `values`, and of
        their difference.
    """

    values: Any
    norm: F8
    quantized_norm: F8
    error_norm: F8


@dataclass(frozen=True)
class MaxNorms:
    """Largest norms of a set of candidates; see QuantizedVectors."""

    norm: float
    quantized_norm: float
    error_norm: float

    @classmethod
    def of(cls, vectors: QuantizedVectors) -> MaxNorms:
        """Return the largest norms of some vectors."""
        norms = (vectors.norm, vectors.quantized_norm, vectors.error_norm)
        return cls(*(float(values.max(initial=0.0)) for values in norms))

    def join(self, other: MaxNorms) -> MaxNorms:
        """Return the largest norms of both sets."""
        return MaxNorms(
            max(self.norm, other.norm),
            max(self.quantized_norm, other.quantized_norm),
            max(self.error_norm, other.error_norm),
        )


class BoundedMatmul:
    """Single-threaded low-precision matrix product that prefilters candidates.

    `tile`: integer type as wide as a low-precision score.
    `rounding`: half the distance from 1 to the next score, where a float32 sum is rounded to a shorter type; 0
        otherwise.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.tile: np.dtype[Any] = np.dtype(np.int16 if arithmetic == "bfloat16" else np.int32)
        self.rounding = 2.0**-8 if arithmetic == "bfloat16" else 0.0

    def quantize(self, vectors: F4 | F8) -> QuantizedVectors:
        """Convert (n, D) finite vectors to low precision."""
        n, width = vectors.shape
        values, norm, quantized_norm, error_norm = self._empty(n, width), np.empty(n), np.empty(n), np.empty(n)
        for start in range(0, n, _CHUNK):
            part = slice(start, start + _CHUNK)
            rounded = self._fill(values, part, vectors[part])
            compute_norms(vectors[part], rounded, norm[part], quantized_norm[part], error_norm[part])
        return QuantizedVectors(values, norm, quantized_norm, error_norm)

    def error_bound(self, queries: QuantizedVectors, candidates: MaxNorms, addends: int) -> F8:
        """Bound the difference of a low-precision score, before its final rounding, from the exact score.

        `queries`: n queries. `addends`: products that are summed for a score. Returns (n,) float64: valid for each
        query and every candidate.
        """
        # |a - a~| |b| + |a~| |b - b~|: the loss by conversion (Cauchy and Schwarz).
        conversion = queries.error_norm * candidates.norm + queries.quantized_norm * candidates.error_norm
        # Twice Higham's bound of a float32 sum in any order: libraries choose the order.
        summation = 2 * (addends + 8) * 2.0**-24 * queries.quantized_norm * candidates.quantized_norm
        # The exact score is a float64 sum and has a rounding error, too.
        exact = 2 * (addends + 8) * 2.0**-53 * queries.norm * candidates.norm
        bound: F8 = (conversion + summation + exact) * _ROUND_UP + _TINY
        return bound

    def empty_tile(self, rows: int, columns: int) -> Any:
        """Allocate a tile of scores."""
        return self._empty(rows, columns)

    def multiply(self, left: Any, right: Any, out: Any) -> NDArray[Any]:
        """Multiply (m, D) by (n, D) low-precision vectors.

        `left`, `right`: rows of `QuantizedVectors.values`. `out`: tile of at least m * n scores. Returns (m, n) int16
        or int32: bits of the products, a view of the beginning of `out`.
        """
        # A tile at the edge takes the first m * n scores of the buffer, so that it is contiguous as well.
        flat = out.reshape(-1)[: len(left) * len(right)].reshape(len(left), len(right))
        if self.arithmetic == "numpy":
            np.matmul(left, right.T, out=flat)
            return flat.view(self.tile)  # type: ignore[no-any-return]
        import torch

        torch.mm(left, right.T, out=flat)
        return flat.view(getattr(torch, self.tile.name)).numpy()  # type: ignore[no-any-return]

    def single_blas_thread(self) -> AbstractContextManager[object]:
        """Limit numpy's products to one thread each (`one_thread_each` does it for torch's)."""
        return single_blas_thread() if self.arithmetic == "numpy" else nullcontext()

    def _empty(self, rows: int, columns: int) -> Any:
        if self.arithmetic == "numpy":
            return np.empty((rows, columns), np.float32)
        import torch

        return torch.empty((rows, columns), dtype=getattr(torch, self.arithmetic))

    def _fill(self, values: Any, part: slice, exact: F4 | F8) -> F4:
        """Write some vectors in low precision; return the values that are stored."""
        if self.arithmetic == "numpy":
            values[part] = exact
            return values[part]  # type: ignore[no-any-return]
        import torch

        values[part] = torch.from_numpy(np.require(exact, requirements="W"))
        return values[part].float().numpy()  # type: ignore[no-any-return]


@cache
def fastest_arithmetic(width: int) -> Arithmetic:
    """Return the arithmetic that multiplies fastest on this machine, among those whose errors stay within the bound.

    A library may be configured to round more than its type implies (`torch.set_float32_matmul_precision`). Such an
    arithmetic is left out. The choice changes the speed of a search and never its result.

    `width`: dimensions of a vector.
    """
    rates: dict[Arithmetic, float] = {}
    drawn = np.random.default_rng(0).standard_normal((2 * _PROBE, width))
    vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    exact = vectors[:_PROBE].astype(np.float64) @ vectors[_PROBE:].astype(np.float64).T
    for arithmetic in _available():
        products = BoundedMatmul(arithmetic)
        with products.single_blas_thread(), _single_torch_thread():
            quantized = products.quantize(vectors)
            out = products.empty_tile(_PROBE, _PROBE)
            bits = products.multiply(quantized.values[:_PROBE], quantized.values[_PROBE:], out)
            slack = products.error_bound(quantized, MaxNorms.of(quantized), width)[:_PROBE, None]
            # Guard against a library that accumulates or multiplies in fewer bits than the bound assumes.
            if (np.abs(as_floats(bits) - exact) <= slack + products.rounding * np.abs(exact)).all():
                rates[arithmetic] = _products_per_second(products, quantized, out)
    return max(rates, key=lambda arithmetic: rates[arithmetic], default="numpy")


@jit
def compute_norms(exact: F4 | F8, rounded: F4, norm: F8, quantized_norm: F8, error_norm: F8) -> None:
    """Write the norms of (n, D) vectors, of their low-precision copies and of the differences; see QuantizedVectors."""
    for i in range(len(exact)):
        a, b = exact[i], rounded[i]
        # Squares are summed in float64: the norms then need no error analysis beyond `_ROUND_UP`.
        exact_squares = rounded_squares = error_squares = 0.0
        for d in range(len(a)):
            x, y = np.float64(a[d]), np.float64(b[d])
            exact_squares += x * x
            rounded_squares += y * y
            error_squares += (x - y) * (x - y)
        # Rounded up, so that each is an upper bound of the true norm.
        norm[i] = np.sqrt(exact_squares) * _ROUND_UP
        quantized_norm[i] = np.sqrt(rounded_squares) * _ROUND_UP
        error_norm[i] = np.sqrt(error_squares) * _ROUND_UP


def as_floats(bits: NDArray[Any]) -> F4:
    """Return the float32 values of low-precision scores."""
    wide = bits.astype(np.int32)
    # A bfloat16 is the upper half of a float32.
    return (wide << 16 if bits.dtype == np.int16 else wide).view(np.float32)


def _available() -> Iterator[Arithmetic]:
    yield "bfloat16"
    yield "float32"
    try:
        import threadpoolctl  # noqa: F401
    except ImportError:  # numpy's threads could not be limited
        return
    yield "numpy"


@contextmanager
def _single_torch_thread() -> Iterator[None]:
    from relabel.core.numeric.threads import inner_threads

    with inner_threads(1):
        yield


def _products_per_second(products: BoundedMatmul, quantized: QuantizedVectors, out: Any) -> float:
    """Time the product; the best of several rounds counts, since other processes slow some of them."""
    best, started = 0.0, time.perf_counter()
    while time.perf_counter() - started < _SECONDS or best == 0.0:
        begun = time.perf_counter()
        products.multiply(quantized.values[:_PROBE], quantized.values[_PROBE:], out)
        best = max(best, 1 / (time.perf_counter() - begun))
    return best
