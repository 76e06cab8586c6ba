"""Some queries against all candidates, a slab of candidates at a time: where few ask, or sets that have no vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.neighbours.groups import room_for
from relabel.neighbours.kept import kept_bytes, kept_for
from relabel.neighbours.merging import Lists, list_bytes
from relabel.neighbours.pairs_of_groups import settled_lists
from relabel.neighbours.rescoring import CODES, Exact
from relabel.neighbours.screening import Arithmetic, Largest, Products, Screened, fastest
from relabel.neighbours.tiles import Side, raise_floors, screen
from relabel.runtime import Runtime
from relabel.sources.base import Pooling
from relabel.sources.ngrams.kernels import jit

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
_FIXED = 24 << 20  # bytes, about, of tiles and pieces in passing
_LEAST = 1024  # candidates a slab


@dataclass(eq=False)
class EachQuery:
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
        each = kept_bytes(room_for(self.keep, len(self.places))) + list_bytes(self.keep) + 12 * self.vectors.shape[1]
        return int(max(1, (self.runtime.memory - _FIXED) // 2 // each))

    def lists(self, sets: References) -> Lists:
        """Find the best of q sets of places, all finite."""
        found = Lists.room(len(sets), self.keep)
        for a in range(0, len(sets), self.together):
            some = sets.take(np.arange(a, min(a + self.together, len(sets))))
            self._search(some, found.part(range(a, a + len(some))))
        return found

    def _search(self, sets: References, found: Lists) -> None:
        products, threads = self._products, self.runtime.threads
        exact = Exact(self.vectors, sets.indptr, np.asarray(sets.rows, np.int64), self.places, CODES[self.pooling])
        asked, length = self.asked(sets)
        addends = int(np.diff(sets.indptr).max()) + self.vectors.shape[1]
        queries = Screened(asked.values, length, asked.held, asked.lost)
        unknown = np.full(len(sets), -np.inf)
        slack = products.slack(queries, self.largest, addends)
        room = room_for(self.keep, len(self.places))
        floor = np.where(length > 0, unknown, np.inf)
        kept = kept_for(slack, floor, room, products.tile, products.rounding)
        left = Side(asked.values, kept, exact)
        raise_floors(products, left, self._held(self._slabs[0]).values, self.keep, threads)
        for slab in self._slabs:
            screen(
                products, left, Side(self._held(slab).values, kept, exact), "one way", slab.start, self.keep, threads
            )
        rows, candidates = range(len(sets)), range(len(self.places))
        settled_lists(left, length, unknown, rows, found, candidates, threads)

    def asked(self, sets: References) -> tuple[Screened, F8]:
        """The vectors that sets are screened with, and how long a set's own vectors are on average."""
        vectors, length = np.empty((len(sets), self.vectors.shape[1])), np.empty(len(sets))
        sizes = np.diff(sets.indptr) if self.pooling == "mean" else np.ones(len(sets), np.int64)
        _means(self.vectors, sets.indptr[:-1], sizes, np.asarray(sets.rows, np.int64), vectors, length)
        return self._products.hold(vectors), length * (1 + 1e-9)

    def _held(self, slab: range) -> Screened:
        """Hold the candidates of a slab; all of them once, if they are one slab."""
        if slab == range(len(self.places)):
            return self._all
        return self._products.hold(self.vectors[self.places[slab.start : slab.stop]])

    @cached_property
    def _all(self) -> Screened:
        return self._products.hold(self.vectors[self.places])

    @cached_property
    def _slabs(self) -> list[range]:
        """Candidates in ranges that are held in a quarter of the memory, one at a time."""
        fit = max(_LEAST, (self.runtime.memory - _FIXED) // 4 // (8 * self.vectors.shape[1] + 24))
        return [range(a, min(a + fit, len(self.places))) for a in range(0, len(self.places), fit)]

    @cached_property
    def largest(self) -> Largest:
        """Largest norms of all candidates."""
        largest = Largest(0.0, 0.0, 0.0)
        for slab in self._slabs:
            largest = largest.join(Largest.of(self._held(slab)))
        return largest

    @cached_property
    def _products(self) -> Products:
        return Products(self.arithmetic or fastest(self.vectors.shape[1]))


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
