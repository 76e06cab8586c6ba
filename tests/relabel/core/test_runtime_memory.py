"""Contract: freed memory is returned to the system, so that the next stage can use it."""

from __future__ import annotations

import sys

import psutil
import pyarrow as pa
import pytest

from relabel.core import runtime
from relabel.core.runtime import release_memory, resident_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' allocators have no such call")
def test_freed_memory_leaves_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MIN_RELEASE", 0)
    release_memory()
    before = psutil.Process().memory_info().rss
    blocks = [b"x" * (60 << 10) + b"%d" % i for i in range(4000)]  # 240 MB in blocks below the size of mapped ones
    last = blocks[-1]
    table = pa.array(range(10_000_000))
    assert psutil.Process().memory_info().rss > before + (280 << 20)
    del blocks, table
    assert resident_bytes() < before + (64 << 20)
    assert last.endswith(b"3999")  # at the end of the heap, where it keeps the C library from returning memory
