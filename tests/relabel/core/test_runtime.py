"""Contract: an amount of memory is parsed with its unit, and anything else is refused with an example. Freed memory is
returned to the system, so that the next stage can use it.
"""

from __future__ import annotations

import sys

import numpy as np
import psutil
import pyarrow as pa
import pytest

from relabel.core.runtime import parse_size, release_memory


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4GiB", 4 << 30),
        ("512MiB", 512 << 20),
        ("4G", 4 << 30),
        ("4GB", 4_000_000_000),
        ("1.5 gib", 3 << 29),
        ("1TiB", 1 << 40),
        ("1000000", 1_000_000),
        (" 300000 KiB ", 300_000 << 10),
    ],
)
def test_amounts(text: str, found: int) -> None:
    assert parse_size(text) == found


@pytest.mark.parametrize("text", ["", "GiB", "4 gigs", "-4GiB", "4GiBs", "inf", "nan", "1e9", "4,5GiB", "٤GiB"])
def test_invalid_amounts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="4GiB or 512MiB"):
        parse_size(text)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' allocators have no such call")
def test_freed_memory_leaves_the_process() -> None:
    release_memory()
    before = psutil.Process().memory_info().rss
    blocks = [b"x" * (60 << 10) + b"%d" % i for i in range(4000)]  # 240 MB in blocks below the size of mapped ones
    last = blocks[-1]
    table = pa.array(np.arange(10_000_000))
    assert psutil.Process().memory_info().rss > before + (280 << 20)
    del blocks, table
    assert release_memory() < before + (64 << 20)
    assert last.endswith(b"3999")  # at the end of the heap, where it keeps the C library from returning memory
