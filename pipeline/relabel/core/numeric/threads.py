"""Loops run by several threads: compiled kernels, which release the GIL, and torch's operators.

Functions that change torch's number of threads restore its own setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from relabel.core.runtime import Advance, ignore_progress

T = TypeVar("T")
R = TypeVar("R")


def run_chunks(
    work: Callable[[int, int], None], count: int, threads: int, step: int, done: Advance = ignore_progress
) -> None:
    """Call ``work(start, stop)`` for consecutive chunks of 0..count.

    `work`: processes one chunk. Chunks run in any order. `step`: size of a chunk; the last one may be smaller. `done`:
    called in the calling thread with the size of each finished chunk.
    """
    chunks = [(start, min(start + step, count)) for start in range(0, count, step)]
    # A pool costs more than it gains where there is nothing to share.
    if threads == 1 or len(chunks) < 2:
        for start, stop in chunks:
            work(start, stop)
            done(stop - start)
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            for (start, stop), future in [(chunk, pool.submit(work, *chunk)) for chunk in chunks]:
                future.result()
                done(stop - start)
        except BaseException:
            # After an error or an interrupt, the chunks that have not begun are dropped.
            pool.shutdown(cancel_futures=True)
            raise


def one_thread_each(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """Call `work` on every item in `workers` threads, with one torch thread inside each, and yield results as they end.

    Threads never wait for each other inside an operator, which is where a busy machine loses most of its time. Results
    cannot depend on the number of threads. After an error no further item is begun, and running items are waited for.
    """
    import torch

    before = torch.get_num_threads()
    # torch keeps its thread count per thread, so each pool thread sets its own.
    pool = ThreadPoolExecutor(max(1, min(workers, len(items))), initializer=torch.set_num_threads, initargs=(1,))
    try:
        for future in as_completed([pool.submit(work, item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


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
