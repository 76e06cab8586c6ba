"""Multithreading: loops over compiled kernels that release the GIL, and the threads of torch and BLAS.

Changes to the number of threads are undone on exit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from relabel.core.runtime import Advance, ignore_progress


def run_chunks(
    work: Callable[[int, int], None], count: int, threads: int, step: int, done: Advance = ignore_progress
) -> None:
    """Call ``work(start, stop)`` for consecutive chunks of 0..count, in any order.

    `step`: size of a chunk; the last one may be smaller. `done`: called in the calling thread with the size of each
    finished chunk. After an error, chunks that have not started are cancelled.
    """

    def run(start: int) -> int:
        stop = min(start + step, count)
        work(start, stop)
        return stop - start

    with ThreadPoolExecutor(threads) as pool:
        # A single chunk runs in this thread, because starting another can take longer than the work.
        for size in (pool.map if count > step else map)(run, range(0, count, step)):
            done(size)


@contextmanager
def inner_threads(count: int) -> Iterator[None]:
    """Set torch's number of intra-op threads to `count`, and restore it on exit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def single_blas_thread() -> AbstractContextManager[object]:
    """Limit BLAS, and with it numpy's matrix products, to one thread per call."""
    return _libraries().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@cache
def _libraries() -> Any:
    """Return a controller of the loaded threading libraries. It is cached, because the search takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
