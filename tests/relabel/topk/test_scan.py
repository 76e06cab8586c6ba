"""Contract: the scan keeps the best candidates by exact score and number, whatever the first floors are. A guess that
is too high is found, and its query is searched again.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.relabel.topk.by_sorting import assert_equal, draw, search_by_sorting

from relabel.corpus import References
from relabel.topk.exact_scores import Sets
from relabel.topk.scan import make_side, scan_tiles, write_best
from relabel.topk.screen import Screen, screen


@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize("floor", [-np.inf, 0.3, 2.0])
@pytest.mark.parametrize("copies", [1, 60])
def test_any_first_floor_gives_the_lists_of_the_reference(kind: Screen, floor: float, copies: int) -> None:
    vectors, keep = draw(700, 33, copies, zeros=0.02), 7
    held, sets, unknown = screen(vectors, kind), Sets.single(vectors, np.arange(700)), np.full(700, -np.inf)
    side = make_side(held, sets, unknown, 20)
    side.buffers.floor[:] = np.maximum(floor, side.buffers.floor)
    scan_tiles(side, side, True, 0, keep, 2)
    lists = write_best(side, [(0, side)], keep, range(700), 2)
    assert_equal(lists, search_by_sorting(vectors, References.single(np.arange(700)), np.arange(700), keep, "max"))
