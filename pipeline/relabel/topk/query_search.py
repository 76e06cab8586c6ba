"""Search of given queries among all candidates, one slab of candidates at a time.

Used if there are few queries, or if the pooled score of a set is not the score of a single vector.

With a GPU, the GPU prefilters and the CPU scores exactly. For each query the GPU selects more candidates than
requested, by low-precision score. If the score of the last one is so low that no other candidate can be among the best,
the CPU scores the selected candidates. It searches for the few other queries (zero vectors, or many candidates with
equal scores) itself. Results therefore do not depend on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.topk.blocking import buffer_bytes, buffer_capacity
from relabel.topk.exact_scores import CODES, Sets, score_pairs
from relabel.topk.merge import TopK, topk_bytes
from relabel.topk.scan import Side, Slabs, finish, make_side, raise_floors, scan_tiles, set_limits, write_best
from relabel.topk.screen import LowPrecision, Screen, fastest_screen, screen

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
_FIXED_BYTES = 24 << 20  # estimate of tiles and temporary arrays
_MIN_SLAB = 1024  # candidates
_QUERIES = 2048  # per product
_CANDIDATES = 1 << 16  # per slab: the scores of 2048 queries take half a GiB
_EXTRA = 64  # candidates selected in addition to twice the results


@dataclass(eq=False)
class QuerySearch:
    """Exact search for the best candidates of any sets.

    A set is prefiltered by its mean vector with pooling `mean`, because the mean of dot products is the dot product
    with the mean. With pooling `first`, it is prefiltered by its first vector.

    `vectors`: (N, D) float32.
    `positions`: (C,) int64; ascending positions of the candidates in `vectors`. Their vectors are finite. The number of
        a candidate is its index in this array.
    `keep`: results per query.
    `kind`: precision of the screen; by default, the fastest on this machine. It does not change the result.
    """

    vectors: F4
    positions: I8
    keep: int
    pooling: Pooling
    runtime: Runtime
    kind: Screen | None = None

    @property
    def batch_sets(self) -> int:
        """Number of sets per batch; a batch takes half of the memory."""
        capacity = buffer_capacity(self.keep, len(self.positions))
        each = buffer_bytes(capacity) + topk_bytes(self.keep) + 12 * self.vectors.shape[1]
        return int(max(1, (self.runtime.memory - _FIXED_BYTES) // 2 // each))

    def search(self, sets: References) -> TopK:
        """Find the best candidates of q sets of positions of finite vectors."""
        threads, count = self.runtime.threads, len(self.positions)
        lists = TopK.empty(len(sets), self.keep)
        for a in range(0, len(sets), self.batch_sets):
            batch = np.arange(a, min(a + self.batch_sets, len(sets)))
            queries = self.prepare(sets.take(batch), buffer_capacity(self.keep, count))
            for first, slab in self._slabs():
                if first == 0:
                    raise_floors(queries, slab.vectors, count, self.keep, threads)
                scan_tiles(queries, slab, False, first, self.keep, threads)
            lists.assign(batch, write_best(queries, self._slabs(), self.keep, range(count), threads))
        return lists

    def prepare(self, sets: References, capacity: int) -> Side:
        """Prepare sets as queries with buffers of `capacity` candidates. Sets are screened by their mean vectors."""
        vectors, norm = np.empty((len(sets), self.vectors.shape[1])), np.empty(len(sets))
        sizes = np.diff(sets.indptr) if self.pooling == "mean" else np.ones(len(sets), np.int64)
        members = np.asarray(sets.rows, np.int64)
        _mean_vectors(self.vectors, sets.indptr[:-1], sizes, members, vectors, norm)
        # The exact score of a set sums over all its vectors. Its float64 error is bounded by their mean norm, and the
        # norm of the mean can be smaller.
        held = screen(vectors, self._kind)._replace(norm=norm * (1 + 1e-9))
        exact = Sets(self.vectors, sets.indptr, members, CODES[self.pooling])
        return make_side(held, exact, np.full(len(sets), -np.inf), capacity)

    def _slabs(self) -> Slabs:
        """Return the candidates in slabs that fit into a quarter of the memory."""
        fit = max(_MIN_SLAB, (self.runtime.memory - _FIXED_BYTES) // 4 // (8 * self.vectors.shape[1] + 24))
        return ((start, self._slab(start, fit)) for start in range(0, len(self.positions), fit))

    @cached_property
    def _slab(self) -> Callable[[int, int], Side]:
        """Function that prepares a slab of candidates from its first number; the last slab is cached."""

        def prepare(start: int, size: int) -> Side:
            positions = self.positions[start : start + size]
            held = screen(self.vectors, self._kind, positions)
            # Candidates need no lists: an infinite floor, and buffers of size 0.
            return make_side(held, Sets.single(self.vectors, positions), np.full(len(positions), np.inf), 0)

        return lru_cache(1)(prepare)

    @property
    def _kind(self) -> Screen:
        return self.kind or fastest_screen()


@jit
def _mean_vectors(vectors: F4, starts: I8, sizes: I8, members: I8, out: F8, norm: F8) -> None:
    """Write the mean of the first `sizes` vectors of each set, and the mean of their norms."""
    for i in range(len(starts)):
        out[i] = 0.0
        total = 0.0
        for r in range(starts[i], starts[i] + sizes[i]):
            # Sum the components and their squares in one pass, both in float64.
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
    """Exact search for the best candidates of any sets on a GPU, otherwise as QuerySearch.

    `processor`: the same search on the CPU, screened in float32, for queries that the GPU cannot decide.
    `device`: a torch device. "cpu" gives the same results and is used in tests.
    """

    processor: QuerySearch
    device: str

    def search(self, sets: References) -> TopK:
        """Find the best candidates of q sets of positions of finite vectors."""
        lists = TopK.empty(len(sets), self.processor.keep)
        for a in range(0, len(sets), _QUERIES):
            rows = np.arange(a, min(a + _QUERIES, len(sets)))
            best, decided = self._search(sets.take(rows))
            lists.assign(rows, best)
            if not decided.all():
                rest = rows[~decided]
                lists.assign(rest, self.processor.search(sets.take(rest)))
        return lists

    def _search(self, sets: References) -> tuple[TopK, NDArray[np.bool_]]:
        """Return the lists of q sets, and a mask of the queries for which they are exact, (q,) bool."""
        search = self.processor
        keep, count, queries = search.keep, len(search.positions), search.prepare(sets, self._count)
        set_limits(queries, self._largest)
        values, numbers = self._pick(queries.vectors.values)
        # The exact k-th best score is at least values[k - 1] - slack. A candidate below values[k - 1] - 2 * slack has
        # an exact score below this bound and cannot be among the best.
        lowest = values[:, keep - 1].astype(np.float64) - 2 * queries.buffers.slack
        # The last selected score is an upper bound for all other candidates.
        decided: NDArray[np.bool_] = (values[:, -1] < lowest) | (values.shape[1] == count)
        # Scores are in descending order, so the candidates to score are at the beginning of each buffer.
        mask = (values >= lowest[:, None]) & decided[:, None]
        candidates = search.positions[numbers[mask]]
        exact = score_pairs(search.vectors, sets.take(np.nonzero(mask)[0]), candidates, search.pooling)
        queries.buffers.numbers[:], queries.buffers.scores[mask] = numbers, exact
        queries.buffers.sizes[:] = mask.sum(axis=1)
        return finish(queries, keep, range(count), search.runtime.threads), decided

    @property
    def _count(self) -> int:
        """Number of candidates selected per query."""
        return min(2 * self.processor.keep + _EXTRA, len(self.processor.positions))

    def _pick(self, queries: Any) -> tuple[F4, NDArray[np.int32]]:
        """Select candidates: their low-precision scores in descending order, and their numbers, (q, count) each."""
        import torch

        from relabel_train.tensors import full_float32

        count, queries = self._count, queries.to(self.device)
        values = torch.empty((len(queries), 0), device=self.device)
        numbers = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        # The error bound does not hold for TF32.
        with full_float32():
            for first, slab in self._slabs():
                # The best of all slabs are among the best of each slab.
                best = torch.topk(torch.mm(queries, slab.T), min(count, len(slab)))
                values, numbers = torch.cat([values, best.values], 1), torch.cat([numbers, best.indices + first], 1)
                top = torch.topk(values, min(count, values.shape[1]))
                values, numbers = top.values, numbers.gather(1, top.indices)
        return values.cpu().numpy(), numbers.cpu().numpy().astype(np.int32)

    def _slabs(self) -> Iterator[tuple[int, Any]]:
        """Yield slabs of candidates on the device, each with the number of its first candidate."""
        for first in range(0, len(self.processor.positions), _CANDIDATES):
            numbers = slice(first, first + _CANDIDATES)
            yield first, self._copy(numbers) if self._resident is None else self._resident[numbers]

    @cached_property
    def _largest(self) -> LowPrecision:
        """The candidate with the maximum norm. It bounds the error for all, as float32 copies are exact."""
        import torch

        norms = [torch.linalg.vector_norm(slab, dim=1, dtype=torch.float64) for _, slab in self._slabs()]
        return screen(self.processor.vectors, "float32", self.processor.positions[[int(torch.cat(norms).argmax())]])

    @cached_property
    def _resident(self) -> Any:
        """All candidates on the device if they take at most half of its free memory, otherwise None."""
        import torch

        size = 4 * len(self.processor.positions) * self.processor.vectors.shape[1]
        # On device "cpu", the candidates are in memory already.
        free = 0 if self.device == "cpu" else torch.cuda.mem_get_info(self.device)[0]
        return self._copy(slice(None)) if size <= free // 2 else None

    def _copy(self, numbers: slice) -> Any:
        """Copy candidates to the device."""
        import torch

        return torch.from_numpy(self.processor.vectors[self.processor.positions[numbers]]).to(self.device)
