"""Work shared between threads: the kernels hold no GIL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from relabel.core.progress import Advance, ignore_progress


def run_chunks(
    work: Callable[[int, int], None], count: int, threads: int, step: int, done: Advance = ignore_progress
) -> None:
    """Run work(lo, hi) over 0..count in pieces of `step`; an interrupt drops what waits.

    `done` is told, in this thread, how large each piece was that has ended.
    """
    pieces = [(a, min(a + step, count)) for a in range(0, count, step)]
    if threads == 1 or len(pieces) < 2:
        for lo, hi in pieces:
            work(lo, hi)
            done(hi - lo)
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            for (lo, hi), future in [(piece, pool.submit(work, *piece)) for piece in pieces]:
                future.result()
                done(hi - lo)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
