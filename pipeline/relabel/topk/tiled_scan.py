"""Scan of all pairs of queries and candidates in tiles of low-precision scores, by several threads.

Each thread multiplies with one thread of its own, so that threads never wait for each other inside a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock, local
from typing import Any, Literal, TypeVar

import numpy as np

from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Advance, ignore_progress
from relabel.topk.bounded_matmul import BoundedMatmul, as_floats
from relabel.topk.candidate_buffer import CandidateBuffer, raise_floor, scan
from relabel.topk.exact_scores import ExactOperands

TILE_EDGE = 512  # 1024 was at most a tenth faster and needs more memory than a limit of 64 MiB leaves
_TILES_PER_RUN = 16  # consecutive tiles of one row of tiles that a thread takes
_SAMPLES_PER_RESULT = 16  # candidates of the sample that sets the first floors, per result

T = TypeVar("T")
R = TypeVar("R")
Mode = Literal["one way", "both ways", "itself"]
"""Sides whose buffers a tile fills: the left one, both, or both of one side that is scanned against itself."""


@dataclass(frozen=True, eq=False)
class TileOperand:
    """Queries or candidates of a tile.

    `values`: tensor or array, (n, D); low-precision vectors; see `QuantizedVectors.values`.
    `buffer`: their candidates.
    `exact`: operands for their exact scores.
    """

    values: Any
    buffer: CandidateBuffer
    exact: ExactOperands


def scan_tiles(
    products: BoundedMatmul,
    left: TileOperand,
    right: TileOperand,
    mode: Mode,
    first: int,
    keep: int,
    threads: int,
    advance: Advance = ignore_progress,
) -> None:
    """Fill the buffers of `left` with candidates of `right` and, depending on the mode, the other way round.

    `mode`: "one way" (only `left` is filled), "both ways", or "itself" (`right` is `left`, every pair is scored once).
    `first`: number of the candidate ``right.values[0]``. `advance`: called with the number of further products.
    """
    rows = [range(a, min(a + TILE_EDGE, len(left.values))) for a in range(0, len(left.values), TILE_EDGE)]
    columns = [range(a, min(a + TILE_EDGE, len(right.values))) for a in range(0, len(right.values), TILE_EDGE)]
    # A lock per row and per column of tiles protects their buffers. Rows are locked before columns and, within one
    # side, i before j > i, so that two threads never wait for each other.
    row_locks = [Lock() for _ in rows]
    column_locks = row_locks if mode == "itself" else [Lock() for _ in columns]
    memory = local()

    def run(item: tuple[int, Sequence[int]]) -> int:
        i, tile_columns = item
        if not hasattr(memory, "tile"):
            memory.tile = products.empty_tile(TILE_EDGE, TILE_EDGE)
        done = 0
        for j in tile_columns:
            a, b = rows[i], columns[j]
            bits = products.multiply(left.values[a.start : a.stop], right.values[b.start : b.stop], memory.tile)
            # A tile on the diagonal holds every pair in both orders: filling its rows is enough.
            both = mode == "both ways" or (mode == "itself" and i != j)
            with row_locks[i], column_locks[j] if both else nullcontext():
                scan(bits, left.buffer, right.buffer, left.exact, right.exact, a.start, first + b.start, both, keep)
            done += len(a) * len(b)
        return done

    # Consecutive items have different rows, so that threads seldom wait for a lock.
    starts = range(0, len(columns), _TILES_PER_RUN)
    items = [(i, range(c, min(c + _TILES_PER_RUN, len(columns)))) for c in starts for i in range(len(rows))]
    if mode == "itself":
        # Only tiles on and above the diagonal: those below hold the same pairs.
        items = [(i, range(max(i, tiles.start), tiles.stop)) for i, tiles in items if i < tiles.stop]
    with products.single_blas_thread():
        for done in one_thread_each(run, items, threads):
            advance(done)


def raise_floors(products: BoundedMatmul, side: TileOperand, candidates: Any, keep: int, threads: int) -> None:
    """Raise the floors of queries without one, by their scores among the first candidates.

    Counting the scores of a sample is much cheaper than filling and pruning the buffers with it.

    `side`: the queries. `candidates`: tensor or array, (n, D); low-precision vectors; nothing is done if they are few.
    """
    sample = min(_SAMPLES_PER_RESULT * keep, len(candidates) // 4)
    unknown = np.flatnonzero(side.buffer.floor == -np.inf)
    # A sample of fewer than two candidates per result would give floors too low to reject much.
    if sample < 2 * keep or not len(unknown):
        return
    step = max(1, TILE_EDGE * TILE_EDGE // sample)

    def run(start: int) -> None:
        tile = products.empty_tile(step, sample)
        bits = products.multiply(side.values[start : start + step], candidates[:sample], tile)
        raise_floor(side.buffer, as_floats(bits), start, keep)

    with products.single_blas_thread():
        list(one_thread_each(run, range(unknown[0], unknown[-1] + 1, step), threads))


def one_thread_each(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """Call `work` on every item in `workers` threads, with one torch thread inside each, and yield the results.

    Threads never wait for each other inside an operator, which is where a busy machine loses most of its time. Results
    cannot depend on the number of threads. After an error no further item is begun, and running items are waited for.
    """
    import torch

    # torch keeps its thread count per thread, so each pool thread sets its own.
    count = max(1, min(workers, len(items)))
    with inner_threads(torch.get_num_threads()), ThreadPoolExecutor(count, "", torch.set_num_threads, (1,)) as pool:
        yield from pool.map(work, items)
