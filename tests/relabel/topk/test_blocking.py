"""Contract: the division into groups covers every number once, fits into memory, and is kept by a resumed run as
long as it fits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relabel.core.runtime import Runtime
from relabel.store.workdir import Work
from relabel.topk.blocking import GroupLayout, load_or_choose_blocking


@pytest.mark.parametrize(("count", "groups"), [(1, 1), (10, 3), (1000, 7), (101, 100)])
def test_groups_cover_every_number_once(count: int, groups: int) -> None:
    layout = GroupLayout(count, groups)
    assert [number for g in range(groups) for number in layout[g]] == list(range(count))
    assert max(len(layout[g]) for g in range(groups)) == layout.largest
    assert len(set(layout.pairs)) == len(layout.pairs) == groups * (groups + 1) // 2
    assert len({layout.file(pair) for pair in layout.pairs}) == len(layout.pairs)


def test_a_resumed_run_keeps_groups_that_fit(tmp_path: Path) -> None:
    work, small, large = Work(tmp_path), Runtime(threads=1, memory=64 << 20), Runtime(threads=1, memory=4 << 30)
    first = load_or_choose_blocking(work, 50_000, 101, 384, small)
    assert load_or_choose_blocking(work, 50_000, 101, 384, large) == first
    other = Work(tmp_path / "other")
    coarse = load_or_choose_blocking(other, 50_000, 101, 384, large)
    assert coarse.largest > first.largest
    other.file(coarse.file(coarse.pairs[0]), lambda path: path.write_bytes(b"x"))
    assert load_or_choose_blocking(other, 50_000, 101, 384, small) == first
    assert not other.done(coarse.file(coarse.pairs[0]))


def test_workers_choose_the_groups_of_the_process_that_started_them(tmp_path: Path) -> None:
    work, parent = Work(tmp_path), Runtime(threads=4, memory=2 << 30, workers=4)
    chosen = load_or_choose_blocking(work, 1_000_000, 101, 384, parent)
    work.file(chosen.file((0, 0)), lambda path: path.write_bytes(b""))
    worker = parent.of_worker()
    assert (worker.threads, worker.memory, worker.workers) == (1, parent.memory // 4, 0)
    assert load_or_choose_blocking(work, 1_000_000, 101, 384, worker) == chosen
    # A share with less memory than another one keeps the groups, and the files that were made with them.
    share = replace(worker, memory=64 << 20, shard=(1, 2))
    assert load_or_choose_blocking(work, 1_000_000, 101, 384, share) == chosen
    assert work.done(chosen.file((0, 0)))
