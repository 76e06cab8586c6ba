"""Contract of the thread helpers: every item is worked on once, with one torch thread inside; an error comes out and
ends the rest; torch's setting is afterwards what it was.
"""

from __future__ import annotations

import threading
import time

import pytest
import torch

from relabel.core.numeric.torch_threads import inner_threads, one_thread_each


@pytest.mark.parametrize("workers", [1, 3])
def test_every_item_once_with_one_torch_thread(workers: int) -> None:
    before, seen = torch.get_num_threads(), set()

    def work(item: int) -> tuple[int, int]:
        seen.add(threading.get_ident())
        return item * item, torch.get_num_threads()

    found = list(one_thread_each(work, range(20), workers))
    assert sorted(found) == [(i * i, 1) for i in range(20)]
    assert len(seen) <= workers
    assert torch.get_num_threads() == before
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert fresh == [before]


def test_no_items_are_no_work() -> None:
    assert list(one_thread_each(lambda item: item, [], 4)) == []


def test_an_error_ends_the_rest() -> None:
    before, worked = torch.get_num_threads(), []

    def work(item: int) -> int:
        worked.append(item)
        if item == 2:
            raise ValueError("two")
        time.sleep(0.002)
        return item

    with pytest.raises(ValueError, match="two"):
        list(one_thread_each(work, range(2000), 1))
    assert len(worked) < 2000
    assert torch.get_num_threads() == before


def test_inner_threads_are_lent() -> None:
    before = torch.get_num_threads()
    with inner_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
