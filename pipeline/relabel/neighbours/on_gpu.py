"""Some queries against all candidates on a GPU: it screens and picks, the processor scores what can still win.

A block of queries keeps more of its best screened scores than are asked for. Where the last of them is so low that what
was not picked cannot be among the best, those picked are scored exactly; the few other queries (zero vectors, hosts of
equal ones) are searched for by the processor. So a GPU changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.neighbours.each_query import EachQuery
from relabel.neighbours.kept import kept_for
from relabel.neighbours.merging import Lists
from relabel.neighbours.pairs_of_groups import settled_lists
from relabel.neighbours.rescoring import CODES, Exact
from relabel.neighbours.screening import Products, Screened
from relabel.neighbours.tiles import Side
from relabel.runtime import Runtime
from relabel.sources.base import Pooling

F4 = NDArray[np.float32]
I8 = NDArray[np.int64]
_QUERIES = 2048
_CANDIDATES = 1 << 16  # of a slab: the scores of a block against it are half a GiB
_MORE = 64  # picked beyond twice what is kept


@dataclass(eq=False)
class OnGpu:
    """The best candidates of any sets; see EachQuery.

    Attributes
    ----------
    vectors, places, keep, pooling, runtime
        See EachQuery.
    device : str
        A torch device; "cpu" computes the same, for tests.
    """

    vectors: F4
    places: I8
    keep: int
    pooling: Pooling
    runtime: Runtime
    device: str

    def lists(self, sets: References) -> Lists:
        """Find the best of q sets of places, all finite."""
        found = Lists.room(len(sets), self.keep)
        for a in range(0, len(sets), _QUERIES):
            rows = np.arange(a, min(a + _QUERIES, len(sets)))
            unsure = rows[self._search(sets.take(rows), found.part(range(a, a + len(rows))))]
            if len(unsure):
                other = self._processor.lists(sets.take(unsure))
                found.numbers[unsure], found.scores[unsure] = other.numbers, other.scores
                found.sizes[unsure] = other.sizes
        return found

    def _search(self, sets: References, found: Lists) -> NDArray[np.bool_]:
        """Fill in what is sure; say which queries are not."""
        asked, length = self._processor.asked(sets)
        addends = int(np.diff(sets.indptr).max()) + self.vectors.shape[1]
        queries = Screened(asked.values, length, asked.held, asked.lost)
        slack = self._products.slack(queries, self._processor.largest, addends)
        values, numbers = self._pick(asked.values)
        lowest = values[:, self.keep - 1].astype(np.float64) - 2 * slack
        sure: NDArray[np.bool_] = (values[:, -1] < lowest) | (values.shape[1] == len(self.places))
        kept = kept_for(slack, np.full(len(sets), -np.inf), values.shape[1], self._products.tile, 0.0)
        kept.values[:], kept.columns[:] = values, numbers
        kept.sizes[:] = np.where(sure, (values >= lowest[:, None]).sum(axis=1), 0)
        exact = Exact(self.vectors, sets.indptr, np.asarray(sets.rows, np.int64), self.places, CODES[self.pooling])
        side, before = Side(asked.values, kept, exact), np.full(len(sets), -np.inf)
        rows, candidates = range(len(sets)), range(len(self.places))
        settled_lists(side, length, before, rows, found, candidates, self.runtime.threads)
        return ~sure

    def _pick(self, asked: Any) -> tuple[F4, NDArray[np.int32]]:
        """Pick the best screened scores of each query, falling, and whose they are."""
        import torch

        count = min(2 * self.keep + _MORE, len(self.places))
        queries = asked.to(self.device)
        values = torch.empty((len(queries), 0), device=self.device)
        numbers = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        with _full_precision():
            for a in range(0, len(self.places), _CANDIDATES):
                slab = torch.from_numpy(self.vectors[self.places[a : a + _CANDIDATES]]).to(self.device)
                best = torch.topk(queries @ slab.T, min(count, len(slab)))
                values, numbers = torch.cat([values, best.values], 1), torch.cat([numbers, best.indices + a], 1)
                top = torch.topk(values, min(count, values.shape[1]))
                values, numbers = top.values, numbers.gather(1, top.indices)
        return values.cpu().numpy(), numbers.cpu().numpy().astype(np.int32)

    @cached_property
    def _products(self) -> Products:
        return Products("float32")

    @cached_property
    def _processor(self) -> EachQuery:
        return EachQuery(self.vectors, self.places, self.keep, self.pooling, self.runtime, "float32")


@contextmanager
def _full_precision() -> Iterator[None]:
    """Have products of float32 be such: the bound of their error counts on it."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
