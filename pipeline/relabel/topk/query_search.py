"""Search of some queries among all candidates, one slab of candidates at a time.

It serves searches with few queries, and sets whose pooled score belongs to no single vector.

A GPU prefilters, and the processor scores exactly. For each query the GPU picks more of the best low-precision scores
than are asked for. If the last one is so low that no other candidate can be among the best, the picked ones are scored
exactly. The few other queries (zero vectors, or many candidates with equal scores) are searched by the processor. A GPU
therefore changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.topk.blocking import buffer_capacity
from relabel.topk.bounded_matmul import Arithmetic, BoundedMatmul, MaxNorms, QuantizedVectors, fastest_arithmetic
from relabel.topk.candidate_buffer import buffer_bytes, make_buffer
from relabel.topk.exact_scores import CODES, ExactOperands
from relabel.topk.merge import TopK, topk_bytes
from relabel.topk.self_join import rescore_queries
from relabel.topk.tiled_scan import TileOperand, raise_floors, scan_tiles

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
_FIXED_BYTES = 24 << 20  # estimate of tiles and temporary arrays
_MIN_SLAB = 1024  # candidates
_QUERIES = 2048  # per product
_CANDIDATES = 1 << 16  # per slab: the scores of 2048 queries are half a GiB
_EXTRA = 64  # candidates picked beyond twice the results


class QueryBatch(NamedTuple):
    """q sets, prepared for the search.

    `values`: tensor or array, (q, D); means of the sets in low precision.
    `norm`: (q,) float64; upper bound of the mean norm of a set's vectors; 0 for a set of zero vectors.
    `slack`: (q,) float64; bound of the error of a low-precision score; see BoundedMatmul.error_bound.
    `exact`: operands for their exact scores.
    """

    values: Any
    norm: F8
    slack: F8
    exact: ExactOperands


@dataclass(eq=False)
class QuerySearch:
    """Exact search for the best candidates of any sets.

    The mean of dot products is the dot product of the mean, so the mean vector of a set prefilters for `mean`, and the
    first vector for `first`.

    `vectors`: (N, D) float32.
    `positions`: (C,) int64; positions of the candidates in `vectors`, ascending, all of them finite. The number of a
        candidate is its index in this array.
    `keep`: results per query.
    `arithmetic`: changes the speed and no result; the fastest one on this machine by default.
    """

    vectors: F4
    positions: I8
    keep: int
    pooling: Pooling
    runtime: Runtime
    arithmetic: Arithmetic | None = None

    @property
    def batch_sets(self) -> int:
        """Sets that are searched together, in half of the memory."""
        capacity = buffer_capacity(self.keep, len(self.positions))
        each = buffer_bytes(capacity) + topk_bytes(self.keep) + 12 * self.vectors.shape[1]
        return int(max(1, (self.runtime.memory - _FIXED_BYTES) // 2 // each))

    def search(self, sets: References) -> TopK:
        """Find the best candidates of q sets of positions in `vectors`, all of them finite."""
        lists = TopK.empty(len(sets), self.keep)
        for a in range(0, len(sets), self.batch_sets):
            batch = sets.take(np.arange(a, min(a + self.batch_sets, len(sets))))
            self._search(batch, lists.part(range(a, a + len(batch))))
        return lists

    def _search(self, sets: References, lists: TopK) -> None:
        products, threads = self.products, self.runtime.threads
        values, norm, slack, exact = self.prepare(sets)
        no_floor = np.full(len(sets), -np.inf)
        # All scores of a zero vector are 0. Its buffer stays empty, and `rescore_queries` takes the first candidates.
        floor = np.where(norm > 0, no_floor, np.inf)
        capacity = buffer_capacity(self.keep, len(self.positions))
        buffer = make_buffer(slack, floor, capacity, products.tile, products.rounding)
        queries = TileOperand(values, buffer, exact)
        raise_floors(products, queries, self._quantized(self._slabs[0]).values, self.keep, threads)
        for slab in self._slabs:
            # In the mode "one way" the right operand's buffer is never touched; the left one stands in for it.
            candidates = TileOperand(self._quantized(slab).values, buffer, exact)
            scan_tiles(products, queries, candidates, "one way", slab.start, self.keep, threads)
        rescore_queries(queries, norm, no_floor, range(len(sets)), lists, range(len(self.positions)), threads)

    def prepare(self, sets: References) -> QueryBatch:
        """Quantize the means of sets of positions and bound the errors of their scores."""
        vectors, norm = np.empty((len(sets), self.vectors.shape[1])), np.empty(len(sets))
        sizes = np.diff(sets.indptr) if self.pooling == "mean" else np.ones(len(sets), np.int64)
        members = np.asarray(sets.rows, np.int64)
        _mean_vectors(self.vectors, sets.indptr[:-1], sizes, members, vectors, norm)
        # The exact score of a set is a sum over all its vectors, so its float64 error follows from their mean norm,
        # which may exceed the norm of the mean.
        quantized, norm = self.products.quantize(vectors), norm * (1 + 1e-9)
        queries = QuantizedVectors(quantized.values, norm, quantized.quantized_norm, quantized.error_norm)
        addends = int(np.diff(sets.indptr).max()) + self.vectors.shape[1]
        exact = ExactOperands(self.vectors, sets.indptr, members, self.positions, CODES[self.pooling])
        slack = self.products.error_bound(queries, self._max_norms, addends)
        return QueryBatch(quantized.values, norm, slack, exact)

    def _quantized(self, slab: range) -> QuantizedVectors:
        """Quantize the candidates of a slab; a single slab is quantized only once."""
        if slab == range(len(self.positions)):
            return self._all_quantized
        return self.products.quantize(self.vectors[self.positions[slab.start : slab.stop]])

    @cached_property
    def _all_quantized(self) -> QuantizedVectors:
        return self.products.quantize(self.vectors[self.positions])

    @cached_property
    def _slabs(self) -> list[range]:
        """Ranges of candidates that fit into a quarter of the memory, one at a time."""
        fit = max(_MIN_SLAB, (self.runtime.memory - _FIXED_BYTES) // 4 // (8 * self.vectors.shape[1] + 24))
        return [range(a, min(a + fit, len(self.positions))) for a in range(0, len(self.positions), fit)]

    @cached_property
    def _max_norms(self) -> MaxNorms:
        """Largest norms of all candidates."""
        largest = MaxNorms(0.0, 0.0, 0.0)
        for slab in self._slabs:
            largest = largest.join(MaxNorms.of(self._quantized(slab)))
        return largest

    @cached_property
    def products(self) -> BoundedMatmul:
        """Low-precision matrix product that prefilters candidates."""
        return BoundedMatmul(self.arithmetic or fastest_arithmetic(self.vectors.shape[1]))


@jit
def _mean_vectors(vectors: F4, starts: I8, sizes: I8, members: I8, out: F8, norm: F8) -> None:
    """Write the mean of the first `sizes` vectors of each set, and the mean of their norms."""
    for i in range(len(starts)):
        out[i] = 0.0
        total = 0.0
        for r in range(starts[i], starts[i] + sizes[i]):
            # One pass sums the vector and its squares, both in float64.
            squares = 0.0
            for d in range(out.shape[1]):
                x = np.float64(vectors[members[r], d])
                out[i, d] += x
                squares += x * x
            total += np.sqrt(squares)
        out[i] /= sizes[i]
        norm[i] = total / sizes[i]


@dataclass(eq=False)
class GpuSearch:
    """Exact search for the best candidates of any sets on a GPU; see QuerySearch.

    `processor`: the same search in float32 arithmetic; it takes the queries that the GPU leaves undecided.
    `device`: a torch device; "cpu" computes the same, for tests.
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

        from relabel_train.tensors import full_float32

        count = min(2 * self.processor.keep + _EXTRA, len(self.processor.positions))
        queries = queries.to(self.device)
        values = torch.empty((len(queries), 0), device=self.device)
        numbers = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        # The bound of the error does not hold for TF32.
        with full_float32():
            for first, slab in self._slabs():
                # The best of all slabs are among the best of each.
                best = torch.topk(torch.mm(queries, slab.T), min(count, len(slab)))
                values, numbers = torch.cat([values, best.values], 1), torch.cat([numbers, best.indices + first], 1)
                top = torch.topk(values, min(count, values.shape[1]))
                values, numbers = top.values, numbers.gather(1, top.indices)
        return values.cpu().numpy(), numbers.cpu().numpy().astype(np.int32)

    def _slabs(self) -> Iterator[tuple[int, Any]]:
        """Yield the candidates on the device, slab by slab, each with the number of its first candidate."""
        for first in range(0, len(self.processor.positions), _CANDIDATES):
            numbers = slice(first, first + _CANDIDATES)
            yield first, self._copy(numbers) if self._resident is None else self._resident[numbers]

    @cached_property
    def _resident(self) -> Any:
        """All candidates on the device, if they take at most half of its free memory; else None."""
        size = 4 * len(self.processor.positions) * self.processor.vectors.shape[1]
        return self._copy(slice(None)) if size <= self._free() // 2 else None

    def _copy(self, numbers: slice) -> Any:
        """Copy candidates to the device."""
        import torch

        return torch.from_numpy(self.processor.vectors[self.processor.positions[numbers]]).to(self.device)

    def _free(self) -> int:
        """Return the free bytes of a GPU; 0 for device "cpu", whose memory holds the candidates already."""
        import torch

        return 0 if self.device == "cpu" else torch.cuda.mem_get_info(self.device)[0]
