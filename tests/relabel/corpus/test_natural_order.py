"""Contract: ranks sort as natural keys, for ids of any form and in any order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relabel.corpus import build
from relabel.corpus.build import natural_key, natural_rank


@given(st.lists(st.text("ab:#-0129²٣", min_size=1, max_size=6), min_size=1, max_size=30))
def test_ranks_sort_as_keys(ids: list[str]) -> None:
    check_rank(ids)


def check_rank(ids: list[str]) -> None:
    rank = natural_rank(pa.array(ids))
    for a, x in zip(rank, ids, strict=True):
        for b, y in zip(rank, ids, strict=True):
            assert (a < b) == (natural_key(x) < natural_key(y))
            assert (a == b) == (x == y)


def test_ranks_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_CHUNK", 3)
    check_rank(["c:9999999999", *(f"c:{n:03d}" for n in (7, 8, 8, 9, 10, 11, 11, 12))])
