"""Contract: any Parquet reader reads a shard, and its row groups bound the memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from relabel.neighbours import spec as module
from relabel.neighbours.spec import SCHEMA, row_groups, table_of
from relabel.store.files import write_plain


@pytest.mark.parametrize(("rows", "width"), [(0, 5), (1, 0), (9, 3), (2_000, 100)])
def test_a_shard_is_plain_parquet(tmp_path: Path, rows: int, width: int) -> None:
    rng, path = np.random.default_rng(rows), tmp_path / "part.parquet"
    numbers = np.arange(rows, dtype=np.int32) + 500_000
    lists = [
        rng.integers(0, 1 << 31, (rows, width)),
        rng.standard_normal((rows, width)),
        rng.random((rows, width)) < 0.3,
    ]
    pieces = [slice(b.start, b.stop) for b in row_groups(range(rows), width)]
    write_plain(
        path, (table_of(numbers[p], lists[0][p].astype(np.int32), lists[1][p], lists[2][p]) for p in pieces), SCHEMA
    )
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table["row"].to_pylist() == numbers.tolist()
    for name, values in zip(SCHEMA.names[1:], lists, strict=True):
        flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        assert np.array_equal(flat, values.astype(flat.dtype).reshape(-1))


def test_memory_does_not_grow_with_k_or_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENTRIES", 1000)
    for width in (0, 1, 7, 999, 5000):
        cut = row_groups(range(5, 1234), width)
        assert max(map(len, cut)) * width <= max(1000, width)
        assert [row for block in cut for row in block] == list(range(5, 1234))
