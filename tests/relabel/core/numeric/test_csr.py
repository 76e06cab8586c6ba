"""Contract: the CSR helpers equal loops over lists of lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relabel.core.numeric.csr import group, indptr_of, owners, ranges


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_pointers_owners_and_ranges_equal_loops(parts: list[tuple[int, int]]) -> None:
    starts, sizes = (np.array([part[i] for part in parts], np.int64) for i in (0, 1))
    indptr = indptr_of(sizes)
    assert indptr.tolist() == [int(sizes[:i].sum()) for i in range(len(parts) + 1)]
    assert owners(indptr).tolist() == [i for i, (_, size) in enumerate(parts) for _ in range(size)]
    assert ranges(starts, sizes).tolist() == [start + j for start, size in parts for j in range(size)]


@given(st.lists(st.integers(0, 6)))
def test_groups_hold_the_positions_of_each_key_in_order(keys: list[int]) -> None:
    indptr, entries = group(np.array(keys, np.int64), 7)
    for key in range(7):
        assert entries[indptr[key] : indptr[key + 1]].tolist() == [i for i, k in enumerate(keys) if k == key]
