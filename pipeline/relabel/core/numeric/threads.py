"""Loops run by several threads: compiled kernels, which release the GIL, and torch's operators.

Functions that change torch's number of threads restore its own setting.
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
    finished chunk. After an error, chunks that have not begun are dropped.
    """

    def run(start: int) -> int:
        stop = min(start + step, count)
        work(start, stop)
        return stop - start

    with ThreadPoolExecutor(threads) as pool:
        # One chunk starts no thread, which would take longer than small work.
        for size in (pool.map if count > step else map)(run, range(0, count, step)):
            done(size)


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


def single_blas_thread() -> AbstractContextManager[object]:
    """Limit numpy's matrix products to one thread each."""
    return _libraries().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@cache
def _libraries() -> Any:
    """Return the libraries with threads that this process has loaded; the search for them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
