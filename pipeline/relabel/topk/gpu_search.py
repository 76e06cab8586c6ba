"""Some queries against all candidates on a GPU: it screens and picks, the processor scores what can still win.

A block of queries keeps more of its best screened scores than are asked for. Where the last of them is so low that what
was not picked cannot be among the best, those picked are scored exactly; the few other queries (zero vectors, hosts of
equal ones) are searched for by the processor. So a GPU changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.topk.candidate_buffer import make_buffer
from relabel.topk.merge import TopK
from relabel.topk.query_search import QuerySearch
from relabel.topk.self_join import rescore_queries
from relabel.topk.tiled_scan import Side

F4 = NDArray[np.float32]
I8 = NDArray[np.int64]
_QUERIES = 2048
_CANDIDATES = 1 << 16  # of a slab: the scores of a block against it are half a GiB
_MORE = 64  # picked beyond twice what is kept


@dataclass(eq=False)
class GpuSearch:
    """The best candidates of any sets; see QuerySearch.

    Attributes
    ----------
    processor : QuerySearch
        The same search; screens in float32.
    device : str
        A torch device; "cpu" computes the same, for tests.
    """

    processor: QuerySearch
    device: str

    def search(self, sets: References) -> TopK:
        """Find the best of q sets of places, all finite."""
        found = TopK.empty(len(sets), self.processor.keep)
        for a in range(0, len(sets), _QUERIES):
            rows = np.arange(a, min(a + _QUERIES, len(sets)))
            unsure = rows[self._search(sets.take(rows), found.part(range(a, a + len(rows))))]
            if len(unsure):
                other = self.processor.search(sets.take(unsure))
                found.numbers[unsure], found.scores[unsure] = other.numbers, other.scores
                found.sizes[unsure] = other.sizes
        return found

    def _search(self, sets: References, found: TopK) -> NDArray[np.bool_]:
        """Fill in what is sure; say which queries are not."""
        keep, candidates = self.processor.keep, len(self.processor.places)
        asked, unknown = self.processor.asked(sets), np.full(len(sets), -np.inf)
        values, numbers = self._pick(asked.values)
        lowest = values[:, keep - 1].astype(np.float64) - 2 * asked.slack
        sure: NDArray[np.bool_] = (values[:, -1] < lowest) | (values.shape[1] == candidates)
        kept = make_buffer(asked.slack, unknown, values.shape[1], self.processor.products.tile, 0.0)
        kept.values[:], kept.columns[:] = values, numbers
        kept.sizes[:] = np.where(sure, (values >= lowest[:, None]).sum(axis=1), 0)
        side, threads = Side(asked.values, kept, asked.exact), self.processor.runtime.threads
        rescore_queries(side, asked.length, unknown, range(len(sets)), found, range(candidates), threads)
        return ~sure

    def _pick(self, asked: Any) -> tuple[F4, NDArray[np.int32]]:
        """Pick the best screened scores of each query, falling, and whose they are."""
        import torch

        vectors, places = self.processor.vectors, self.processor.places
        count = min(2 * self.processor.keep + _MORE, len(places))
        queries = asked.to(self.device)
        values = torch.empty((len(queries), 0), device=self.device)
        numbers = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        with _full_precision():
            for a in range(0, len(places), _CANDIDATES):
                slab = torch.from_numpy(vectors[places[a : a + _CANDIDATES]]).to(self.device)
                best = torch.topk(queries @ slab.T, min(count, len(slab)))
                values, numbers = torch.cat([values, best.values], 1), torch.cat([numbers, best.indices + a], 1)
                top = torch.topk(values, min(count, values.shape[1]))
                values, numbers = top.values, numbers.gather(1, top.indices)
        return values.cpu().numpy(), numbers.cpu().numpy().astype(np.int32)


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
