"""Two ways to spread torch's work over CPU threads. Both restore torch's own setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def one_thread_each(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """Call `work` on every item in `workers` threads, with one torch thread inside each, and yield results as they end.

    Threads never wait for each other inside an operator, which is where a busy machine loses most of its time. Results
    cannot depend on the number of threads. After an error no further item is begun, and running items are waited for.
    """
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
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
