"""Contract: the row groups of a shard bound the memory of its writer, and cover every row once."""

from __future__ import annotations

import pytest

from relabel.neighbours import spec as module
from relabel.neighbours.spec import group_rows, row_groups


def test_memory_does_not_grow_with_k_or_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENTRIES", 1000)
    for width in (0, 1, 7, 999, 5000):
        assert group_rows(width) * width <= max(1000, width)
        cut = row_groups(range(5, 1234), width)
        assert [row for block in cut for row in block] == list(range(5, 1234))
