"""Two ways to spread torch's work over CPU threads, each leaving torch's own setting as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def one_thread_each(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """Run `work` on every item, so many at a time, torch using one thread inside each; yield results as they come.

    Threads never wait for each other inside an operator, which is where a busy machine loses most of its time, and a
    result cannot depend on how many there are. An error ends the whole; what runs is waited for.
    """
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(max(1, min(workers, len(items))), initializer=torch.set_num_threads, initargs=(1,))
    try:
        for future in as_completed([pool.submit(work, item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


@contextmanager
def inner_threads(count: int) -> Iterator[None]:
    """Have torch use `count` threads inside each operator."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
