"""Loops run by several threads: compiled kernels, which release the GIL, and torch's operators.

Functions that change torch's number of threads restore its own setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from relabel.core.runtime import Advance, ignore_progress

T = TypeVar("T")
R = TypeVar("R")


def run_chunks(
    work: Callable[[int, int], None], count: int, threads: int, step: int, done: Advance = ignore_progress
) -> None:
    """Call ``work(start, stop)`` for consecutive chunks of 0..count, in any order.

    `step`: size of a chunk; the last one may be smaller. `done`: called in the calling thread with the size of each
    finished chunk. After an error, chunks that have not begun are dropped.
    """

    def run(start: int) -> int:
        stop = min(start + step, count)
        work(start, stop)
        return stop - start

    with ThreadPoolExecutor(threads) as pool:
        for size in pool.map(run, range(0, count, step)):
            done(size)


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


@contextmanager
def inner_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads inside each operator."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
