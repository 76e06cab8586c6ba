"""Contract: the search of some queries returns the lists of the reference implementation, bit for bit, for sets of
any size and any division into batches and slabs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.topk import query_search
from relabel.topk.bounded_matmul import Arithmetic
from relabel.topk.query_search import QuerySearch


@pytest.mark.parametrize("arithmetic", ["bfloat16", "float32", "numpy"])
@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("memory", [1 << 15, 1 << 26])
def test_lists_equal_those_of_the_reference(
    arithmetic: Arithmetic, pooling: Pooling, memory: int, draw: Any, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_search, "_FIXED_BYTES", 0)
    monkeypatch.setattr(query_search, "_MIN_SLAB", 50)
    vectors, positions = draw(300, 17, copies=3, zeros=0.05), np.arange(0, 300, 2)
    sets = References.of([np.arange(a, a + 1 + a % 5) for a in range(0, 290, 11)])
    search = QuerySearch(vectors, positions, 8, pooling, Runtime(threads=2, memory=memory), arithmetic)
    expected = reference(vectors, sets, positions, 8, pooling)
    for ours, theirs in zip(search.search(sets), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
