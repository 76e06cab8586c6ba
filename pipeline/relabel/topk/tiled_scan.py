"""Tiles of screened scores, made and looked at by several threads, each with its own single-threaded products."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock, local
from typing import Any

import numpy as np

from relabel.core.numeric.torch_threads import one_thread_each
from relabel.core.progress import Advance, ignore_progress
from relabel.topk.bounded_matmul import BoundedMatmul
from relabel.topk.candidate_buffer import CandidateBuffer, raise_floor, scan
from relabel.topk.exact_scores import ExactOperands

TILE_EDGE = 512  # 1024 was no more than a tenth faster, and took more memory than a run of 64 MiB has
_RUN = 16  # tiles a thread takes at once
_SAMPLES_PER_RESULT = 16  # candidates looked at for each that is kept, before the rest


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or candidates of a tile.

    Attributes
    ----------
    values : tensor or array, (n, D)
        As `BoundedMatmul` holds them.
    kept : CandidateBuffer
        What is kept for them.
    exact : ExactOperands
        How they are scored against candidates by number.
    """

    values: Any
    kept: CandidateBuffer
    exact: ExactOperands


def screen(
    products: BoundedMatmul,
    left: Side,
    right: Side,
    mode: str,
    first: int,
    keep: int,
    threads: int,
    advance: Advance = ignore_progress,
) -> None:
    """Keep the candidates of all queries of `left` among `right`, and the other way round.

    Parameters
    ----------
    products : BoundedMatmul
    left, right : Side
    mode : "one way" (`left` asks), "both ways", or "itself" (`right` is `left`; every tile serves both its sides)
    first : int
        Number of the candidate that ``right.values[0]`` is.
    keep, threads : int
    advance : callable
        Told how many more products are looked at.
    """
    rows = [range(a, min(a + TILE_EDGE, len(left.values))) for a in range(0, len(left.values), TILE_EDGE)]
    columns = [range(a, min(a + TILE_EDGE, len(right.values))) for a in range(0, len(right.values), TILE_EDGE)]
    row_locks = [Lock() for _ in rows]
    column_locks = row_locks if mode == "itself" else [Lock() for _ in columns]
    room = local()

    def run(item: tuple[int, Sequence[int]]) -> int:
        i, some = item
        if not hasattr(room, "tile"):
            room.tile = products.empty_tile(TILE_EDGE, TILE_EDGE)
        done = 0
        for j in some:
            a, b = rows[i], columns[j]
            bits = products.multiply(left.values[a.start : a.stop], right.values[b.start : b.stop], room.tile)
            both = mode == "both ways" or (mode == "itself" and i != j)
            with row_locks[i], column_locks[j] if both else nullcontext():
                scan(bits, left.kept, right.kept, left.exact, right.exact, a.start, first + b.start, both, keep)
            done += len(a) * len(b)
        return done

    # neighbouring items have other rows, so that threads seldom wait for each other's
    starts = range(0, len(columns), _RUN)
    items = [(i, range(c, min(c + _RUN, len(columns)))) for c in starts for i in range(len(rows))]
    if mode == "itself":
        items = [(i, range(max(i, some.start), some.stop)) for i, some in items if i < some.stop]
    with products.alone():
        for done in one_thread_each(run, items, threads):
            advance(done)


def raise_floors(products: BoundedMatmul, side: Side, candidates: Any, keep: int, threads: int) -> None:
    """Raise the floors of queries of which nothing is known, by their screened scores among the first candidates.

    Much cheaper than to keep the best of so many one by one.

    Parameters
    ----------
    products : BoundedMatmul
    side : Side
        The queries.
    candidates : tensor or array, (n, D)
        Held vectors; nothing is done where they are few.
    keep, threads : int
    """
    sample = min(_SAMPLES_PER_RESULT * keep, len(candidates) // 4)
    unknown = np.flatnonzero(side.kept.floor == -np.inf)
    if sample < 2 * keep or not len(unknown):
        return
    step = max(1, TILE_EDGE * TILE_EDGE // sample)

    def run(start: int) -> None:
        bits = products.multiply(
            side.values[start : start + step], candidates[:sample], products.empty_tile(step, sample)
        )
        raise_floor(side.kept, bits, start, keep)

    with products.alone():
        list(one_thread_each(run, range(unknown[0], unknown[-1] + 1, step), threads))
