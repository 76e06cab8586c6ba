"""Loops run by several threads. The compiled kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from relabel.core.progress import Advance, ignore_progress


def run_chunks(
    work: Callable[[int, int], None], count: int, threads: int, step: int, done: Advance = ignore_progress
) -> None:
    """Call ``work(start, stop)`` for consecutive chunks of 0..count.

    Parameters
    ----------
    work : callable
        Processes one chunk. Chunks run in any order.
    count : int
    threads : int
    step : int
        Size of a chunk; the last one may be smaller.
    done : callable, optional
        Called in the calling thread with the size of each finished chunk.

    Examples
    --------
    >>> squares = [0] * 5
    >>> def work(start, stop):
    ...     for i in range(start, stop):
    ...         squares[i] = i * i
    >>> run_chunks(work, len(squares), threads=2, step=2)
    >>> squares
    [0, 1, 4, 9, 16]
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
