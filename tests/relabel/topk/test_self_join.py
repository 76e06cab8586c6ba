"""Contract: the self-join returns the lists of the reference implementation, bit for bit, for any division by memory
and any order of tasks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.encodings import Counted
from tests.relabel.topk.by_sorting import assert_equal, draw, search_by_sorting

from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.store.workdir import Work
from relabel.topk import blocking, scan
from relabel.topk.screen import Screen
from relabel.topk.self_join import SelfJoin


@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize(("copies", "zeros"), [(1, 0.0), (40, 0.1)])
def test_lists_equal_those_of_the_reference(
    kind: Screen, copies: int, zeros: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "TILE_EDGE", 48)
    for name, value in (("_MIN_GROUP", 32), ("_FIXED_BYTES", 0), ("_THREAD_BYTES", 0)):
        monkeypatch.setattr(blocking, name, value)
    vectors, positions = draw(260, 19, copies, zeros), np.arange(3, 260)
    progress, work = Counted(), Work(tmp_path)
    join = SelfJoin(vectors, positions, 9, Runtime(threads=2, memory=1 << 17, progress=progress), kind)
    tasks = join.step(work).tasks
    assert len(tasks) > 5
    for task in reversed(tasks):
        progress.amounts.clear()
        work.file(task.file, task.write)
        assert sum(progress.amounts) == task.size
    expected = search_by_sorting(vectors, References.single(positions), positions, 9, "max")
    assert_equal(join.read(work, np.arange(len(positions))), expected)
    numbers = np.array([0, 5, 100, 101, 256])
    for ours, theirs in zip(join.read(work, numbers), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs[numbers])
