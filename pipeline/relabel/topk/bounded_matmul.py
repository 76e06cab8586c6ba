"""Scores screened by matrix products in whatever arithmetic is fastest here, each with a bound of its error.

With a~ for a as the arithmetic holds it, Cauchy and Schwarz give::

    |a.b - a~.b~| <= |a - a~| |b| + |a~| |b - b~|

The norms are computed, not estimated. A sum of D products in float32, in any order, is off by at most about
D 2^-24 |a~| |b~| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); twice that is allowed for.
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

from relabel.core.numeric.jit import jit

Arithmetic = Literal["bfloat16", "float32", "numpy"]
F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
_PROBE = 512
_SECONDS = 0.02
_TINY = 1e-30  # covers products that vanish
_UP = 1 + 1e-9  # covers the rounding of the bounds themselves
_STEP = 1 << 12


@dataclass(frozen=True, eq=False)
class QuantizedVectors:
    """n vectors as the arithmetic holds them.

    Attributes
    ----------
    values : tensor or array, (n, D)
    length, held, lost : (n,) float64
        Norms, not rounded down, of the vectors, of what is held, and of the difference.
    """

    values: Any
    length: F8
    held: F8
    lost: F8


@dataclass(frozen=True)
class MaxNorms:
    """Largest norms among all candidates; see QuantizedVectors."""

    length: float
    held: float
    lost: float

    @classmethod
    def of(cls, some: QuantizedVectors) -> MaxNorms:
        """Largest norms of some candidates."""
        return cls(*(float(norm.max(initial=0.0)) for norm in (some.length, some.held, some.lost)))

    def join(self, other: MaxNorms) -> MaxNorms:
        """Largest norms of both."""
        return MaxNorms(max(self.length, other.length), max(self.held, other.held), max(self.lost, other.lost))


class BoundedMatmul:
    """Matrix products in one arithmetic, one thread each.

    Attributes
    ----------
    arithmetic : "bfloat16" or "float32" (both by torch), or "numpy" (float32)
    tile : dtype
        Integers as wide as a screened score.
    rounding : float
        Half the distance from 1 to the next screened score where a sum is rounded once more; else 0.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.tile: np.dtype[Any] = np.dtype(np.int16 if arithmetic == "bfloat16" else np.int32)
        self.rounding = 2.0**-8 if arithmetic == "bfloat16" else 0.0

    def quantize(self, vectors: F4 | F8) -> QuantizedVectors:
        """Take (n, D) finite vectors."""
        n, width = vectors.shape
        values, length, held, lost = self._empty(n, width), np.empty(n), np.empty(n), np.empty(n)
        for a in range(0, n, _STEP):
            part = slice(a, a + _STEP)
            rounded = self._fill(values, part, vectors[part])
            norms(vectors[part], rounded, length[part], held[part], lost[part])
        return QuantizedVectors(values, length, held, lost)

    def error_bound(self, queries: QuantizedVectors, candidates: MaxNorms, addends: int) -> F8:
        """Bound what a screened score is off by, before it is rounded, (n,) float64.

        Parameters
        ----------
        queries : QuantizedVectors
        candidates : MaxNorms
        addends : int
            Products that are summed for a score.
        """
        conversion = queries.lost * candidates.length + queries.held * candidates.lost
        summing = 2 * (addends + 8) * 2.0**-24 * queries.held * candidates.held
        exact = 2 * (addends + 8) * 2.0**-53 * queries.length * candidates.length
        bound: F8 = (conversion + summing + exact) * _UP + _TINY
        return bound

    def empty_tile(self, rows: int, columns: int) -> Any:
        """Make room for a tile."""
        return self._empty(rows, columns)

    def multiply(self, left: Any, right: Any, out: Any) -> NDArray[Any]:
        """Multiply (m, D) held vectors by (n, D); return the bits of the (m, n) products, in the corner of `out`."""
        flat = out.reshape(-1)[: len(left) * len(right)].reshape(len(left), len(right))
        if self.arithmetic == "numpy":
            np.matmul(left, right.T, out=flat)
            return flat.view(self.tile)  # type: ignore[no-any-return]
        import torch

        torch.mm(left, right.T, out=flat)
        return flat.view(getattr(torch, self.tile.name)).numpy()  # type: ignore[no-any-return]

    def alone(self) -> AbstractContextManager[object]:
        """Keep numpy's products to one thread each (torch's are by `one_thread_each`)."""
        if self.arithmetic == "numpy":
            from threadpoolctl import threadpool_limits

            return threadpool_limits(1, "blas")  # type: ignore[no-any-return]
        return nullcontext()

    def _empty(self, rows: int, columns: int) -> Any:
        if self.arithmetic == "numpy":
            return np.empty((rows, columns), np.float32)
        import torch

        return torch.empty((rows, columns), dtype=getattr(torch, self.arithmetic))

    def _fill(self, values: Any, part: slice, exact: F4 | F8) -> F4:
        """Round some vectors; return what they are now."""
        if self.arithmetic == "numpy":
            values[part] = exact
            return values[part]  # type: ignore[no-any-return]
        import torch

        values[part] = torch.from_numpy(np.require(exact, requirements="W"))
        return values[part].float().numpy()  # type: ignore[no-any-return]


@cache
def fastest_arithmetic(width: int) -> Arithmetic:
    """Find the arithmetic that multiplies fastest here, among those that keep to their bound.

    A library may be told to round more than its type says (`torch.set_float32_matmul_precision`); such a one is passed
    over. What is found changes no result.

    Parameters
    ----------
    width : int
        Numbers a vector has.
    """
    rates: dict[Arithmetic, float] = {}
    drawn = np.random.default_rng(0).standard_normal((2 * _PROBE, width))
    vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    exact = vectors[:_PROBE].astype(np.float64) @ vectors[_PROBE:].astype(np.float64).T
    for arithmetic in _at_hand():
        products = BoundedMatmul(arithmetic)
        with products.alone(), _one_torch_thread():
            held = products.quantize(vectors)
            out = products.empty_tile(_PROBE, _PROBE)
            bits = products.multiply(held.values[:_PROBE], held.values[_PROBE:], out)
            slack = products.error_bound(held, MaxNorms.of(held), width)[:_PROBE, None]
            if (np.abs(as_floats(bits) - exact) <= slack + products.rounding * np.abs(exact)).all():
                rates[arithmetic] = _rate(products, held, out)
    return max(rates, key=lambda a: rates[a], default="numpy")


@jit
def norms(exact: F4 | F8, rounded: F4, length: F8, held: F8, lost: F8) -> None:
    """Write the norms of (n, D) vectors, of what they were rounded to and of the difference; see QuantizedVectors."""
    for i in range(len(exact)):
        a, b = exact[i], rounded[i]
        whole = kept = gone = 0.0
        for d in range(len(a)):
            x, y = np.float64(a[d]), np.float64(b[d])
            whole += x * x
            kept += y * y
            gone += (x - y) * (x - y)
        length[i], held[i], lost[i] = np.sqrt(whole) * _UP, np.sqrt(kept) * _UP, np.sqrt(gone) * _UP


def as_floats(bits: NDArray[Any]) -> F4:
    """Read screened scores from their bits."""
    wide = bits.astype(np.int32)
    return (wide << 16 if bits.dtype == np.int16 else wide).view(np.float32)


def _at_hand() -> Iterator[Arithmetic]:
    yield "bfloat16"
    yield "float32"
    try:
        import threadpoolctl  # noqa: F401
    except ImportError:  # numpy's threads could not be kept apart
        return
    yield "numpy"


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    from relabel.core.numeric.torch_threads import inner_threads

    with inner_threads(1):
        yield


def _rate(products: BoundedMatmul, held: QuantizedVectors, out: Any) -> float:
    """Products a second, the best of some tries: what else the machine does slows some of them."""
    best, started = 0.0, time.perf_counter()
    while time.perf_counter() - started < _SECONDS or best == 0.0:
        one = time.perf_counter()
        products.multiply(held.values[:_PROBE], held.values[_PROBE:], out)
        best = max(best, 1 / (time.perf_counter() - one))
    return best
