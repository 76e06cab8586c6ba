"""Contract: the thread helpers process every chunk and every item once. Items run with one torch thread, and torch's
setting is restored afterwards.
"""

from __future__ import annotations

import threading

import pytest
import torch

from relabel.core.numeric.threads import run_chunks
from relabel.topk.tiled_scan import one_thread_each


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("count", "step"), [(0, 4), (3, 4), (4, 4), (1001, 4)])
def test_chunks_cover_the_range_once(count: int, step: int, threads: int) -> None:
    worked, sizes = [0] * count, []

    def work(start: int, stop: int) -> None:
        assert 0 < stop - start <= step
        for i in range(start, stop):
            worked[i] += 1

    run_chunks(work, count, threads, step, sizes.append)
    assert worked == [1] * count
    assert sum(sizes) == count


@pytest.mark.parametrize("workers", [1, 3])
def test_every_item_once_with_one_torch_thread(workers: int) -> None:
    before, seen = torch.get_num_threads(), set()

    def work(item: int) -> tuple[int, int]:
        seen.add(threading.get_ident())
        return item * item, torch.get_num_threads()

    results = list(one_thread_each(work, range(20), workers))
    assert sorted(results) == [(i * i, 1) for i in range(20)]
    assert len(seen) <= workers
    assert torch.get_num_threads() == before
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert fresh == [before]
