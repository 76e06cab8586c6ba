"""Some queries against all candidates, a slab of candidates at a time: where few ask, or sets that have no vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.topk.blocking import room_for
from relabel.topk.bounded_matmul import Arithmetic, BoundedMatmul, MaxNorms, QuantizedVectors, fastest_arithmetic
from relabel.topk.candidate_buffer import buffer_bytes, make_buffer
from relabel.topk.exact_scores import CODES, ExactOperands
from relabel.topk.merge import TopK, topk_bytes
from relabel.topk.self_join import rescore_queries
from relabel.topk.tiled_scan import Side, raise_floors, screen

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
_FIXED = 24 << 20  # bytes, about, of tiles and pieces in passing
_LEAST = 1024  # candidates a slab


class Asked(NamedTuple):
    """q sets that are searched for.

    Attributes
    ----------
    values : tensor or array, (q, D)
        What screens them, as `BoundedMatmul` holds it.
    length : (q,) float64
        How long a set's own vectors are on average.
    slack : (q,) float64
        What a screened score is off by at most; see BoundedMatmul.error_bound.
    exact : ExactOperands
        How they are scored against candidates by number.
    """

    values: Any
    length: F8
    slack: F8
    exact: ExactOperands


@dataclass(eq=False)
class QuerySearch:
    """The best candidates of any sets. The pooled scores of a set are screened by the mean of its vectors.

    Attributes
    ----------
    vectors : (N, D) float32
    places : (C,) int64
        The candidates, ascending, all finite; a candidate's number is its position here.
    keep : int
        Candidates a list holds.
    pooling : "paired" or "mean"
    runtime : Runtime
    arithmetic : Arithmetic, optional
        Changes nothing but the time; the fastest here where none is given.
    """

    vectors: F4
    places: I8
    keep: int
    pooling: Pooling
    runtime: Runtime
    arithmetic: Arithmetic | None = None

    @property
    def together(self) -> int:
        """Sets that are searched for at once, in half the memory."""
        each = buffer_bytes(room_for(self.keep, len(self.places))) + topk_bytes(self.keep) + 12 * self.vectors.shape[1]
        return int(max(1, (self.runtime.memory - _FIXED) // 2 // each))

    def search(self, sets: References) -> TopK:
        """Find the best of q sets of places, all finite."""
        found = TopK.empty(len(sets), self.keep)
        for a in range(0, len(sets), self.together):
            some = sets.take(np.arange(a, min(a + self.together, len(sets))))
            self._search(some, found.part(range(a, a + len(some))))
        return found

    def _search(self, sets: References, found: TopK) -> None:
        products, threads = self.products, self.runtime.threads
        values, length, slack, exact = self.asked(sets)
        unknown = np.full(len(sets), -np.inf)
        room = room_for(self.keep, len(self.places))
        floor = np.where(length > 0, unknown, np.inf)
        kept = make_buffer(slack, floor, room, products.tile, products.rounding)
        left = Side(values, kept, exact)
        raise_floors(products, left, self._held(self._slabs[0]).values, self.keep, threads)
        for slab in self._slabs:
            screen(
                products, left, Side(self._held(slab).values, kept, exact), "one way", slab.start, self.keep, threads
            )
        rescore_queries(left, length, unknown, range(len(sets)), found, range(len(self.places)), threads)

    def asked(self, sets: References) -> Asked:
        """Prepare sets of places to be searched for."""
        vectors, length = np.empty((len(sets), self.vectors.shape[1])), np.empty(len(sets))
        sizes = np.diff(sets.indptr) if self.pooling == "mean" else np.ones(len(sets), np.int64)
        places = np.asarray(sets.rows, np.int64)
        _means(self.vectors, sets.indptr[:-1], sizes, places, vectors, length)
        held, length = self.products.quantize(vectors), length * (1 + 1e-9)
        queries = QuantizedVectors(held.values, length, held.held, held.lost)
        addends = int(np.diff(sets.indptr).max()) + self.vectors.shape[1]
        exact = ExactOperands(self.vectors, sets.indptr, places, self.places, CODES[self.pooling])
        return Asked(held.values, length, self.products.error_bound(queries, self._largest, addends), exact)

    def _held(self, slab: range) -> QuantizedVectors:
        """Hold the candidates of a slab; all of them once, if they are one slab."""
        if slab == range(len(self.places)):
            return self._all
        return self.products.quantize(self.vectors[self.places[slab.start : slab.stop]])

    @cached_property
    def _all(self) -> QuantizedVectors:
        return self.products.quantize(self.vectors[self.places])

    @cached_property
    def _slabs(self) -> list[range]:
        """Candidates in ranges that are held in a quarter of the memory, one at a time."""
        fit = max(_LEAST, (self.runtime.memory - _FIXED) // 4 // (8 * self.vectors.shape[1] + 24))
        return [range(a, min(a + fit, len(self.places))) for a in range(0, len(self.places), fit)]

    @cached_property
    def _largest(self) -> MaxNorms:
        largest = MaxNorms(0.0, 0.0, 0.0)
        for slab in self._slabs:
            largest = largest.join(MaxNorms.of(self._held(slab)))
        return largest

    @cached_property
    def products(self) -> BoundedMatmul:
        """What screens."""
        return BoundedMatmul(self.arithmetic or fastest_arithmetic(self.vectors.shape[1]))


@jit
def _means(vectors: F4, starts: I8, sizes: I8, places: I8, out: F8, length: F8) -> None:
    """Write the mean of the first `sizes` vectors of each set, and the mean of their norms."""
    for i in range(len(starts)):
        out[i] = 0.0
        total = 0.0
        for r in range(starts[i], starts[i] + sizes[i]):
            squares = 0.0
            for d in range(out.shape[1]):
                x = np.float64(vectors[places[r], d])
                out[i, d] += x
                squares += x * x
            total += np.sqrt(squares)
        out[i] /= sizes[i]
        length[i] = total / sizes[i]
