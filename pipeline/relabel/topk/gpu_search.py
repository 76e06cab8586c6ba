"""Search of some queries among all candidates on a GPU: it prefilters, and the processor scores exactly.

For each query the GPU picks more of the best low-precision scores than are asked for. If the last one is so low that no
other candidate can be among the best, the picked ones are scored exactly. The few other queries (zero vectors, or many
candidates with equal scores) are searched by the processor. A GPU therefore changes no result.
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
from relabel.topk.tiled_scan import TileOperand

F4 = NDArray[np.float32]
_QUERIES = 2048  # per product
_CANDIDATES = 1 << 16  # per slab: the scores of 2048 queries are half a GiB
_EXTRA = 64  # candidates picked beyond twice the results


@dataclass(eq=False)
class GpuSearch:
    """Exact search for the best candidates of any sets on a GPU; see QuerySearch.

    Attributes
    ----------
    processor : QuerySearch
        The same search in float32 arithmetic; it takes the queries that the GPU leaves undecided.
    device : str
        A torch device; "cpu" computes the same, for tests.
    """

    processor: QuerySearch
    device: str

    def search(self, sets: References) -> TopK:
        """Find the best candidates of q sets of positions, all of them finite."""
        lists = TopK.empty(len(sets), self.processor.keep)
        for a in range(0, len(sets), _QUERIES):
            rows = np.arange(a, min(a + _QUERIES, len(sets)))
            undecided = rows[self._search(sets.take(rows), lists.part(range(a, a + len(rows))))]
            if len(undecided):
                rest = self.processor.search(sets.take(undecided))
                lists.numbers[undecided], lists.scores[undecided] = rest.numbers, rest.scores
                lists.sizes[undecided] = rest.sizes
        return lists

    def _search(self, sets: References, lists: TopK) -> NDArray[np.bool_]:
        """Fill in the lists of queries that are decided; return a mask of the others, (q,) bool."""
        keep, candidates = self.processor.keep, len(self.processor.positions)
        batch, no_floor = self.processor.prepare(sets), np.full(len(sets), -np.inf)
        values, numbers = self._pick(batch.values)
        # The exact k-th best is at least values[k - 1] - slack. A candidate below values[k - 1] - 2 * slack has an
        # exact score below that, and cannot be among the best.
        lowest = values[:, keep - 1].astype(np.float64) - 2 * batch.slack
        # All candidates that were not picked score at most as high as the last one that was.
        decided: NDArray[np.bool_] = (values[:, -1] < lowest) | (values.shape[1] == candidates)
        buffer = make_buffer(batch.slack, no_floor, values.shape[1], self.processor.products.tile, 0.0)
        buffer.values[:], buffer.numbers[:] = values, numbers
        buffer.sizes[:] = np.where(decided, (values >= lowest[:, None]).sum(axis=1), 0)
        queries, threads = TileOperand(batch.values, buffer, batch.exact), self.processor.runtime.threads
        rescore_queries(queries, batch.norm, no_floor, range(len(sets)), lists, range(candidates), threads)
        return ~decided

    def _pick(self, queries: Any) -> tuple[F4, NDArray[np.int32]]:
        """Return the best low-precision scores of each query, falling, and the numbers of their candidates."""
        import torch

        vectors, positions = self.processor.vectors, self.processor.positions
        count = min(2 * self.processor.keep + _EXTRA, len(positions))
        queries = queries.to(self.device)
        values = torch.empty((len(queries), 0), device=self.device)
        numbers = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        with _full_precision():
            for a in range(0, len(positions), _CANDIDATES):
                slab = torch.from_numpy(vectors[positions[a : a + _CANDIDATES]]).to(self.device)
                # The best of all slabs are among the best of each.
                best = torch.topk(queries @ slab.T, min(count, len(slab)))
                values, numbers = torch.cat([values, best.values], 1), torch.cat([numbers, best.indices + a], 1)
                top = torch.topk(values, min(count, values.shape[1]))
                values, numbers = top.values, numbers.gather(1, top.indices)
        return values.cpu().numpy(), numbers.cpu().numpy().astype(np.int32)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Multiply float32 in full precision: the bound of the error does not hold for TF32."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
