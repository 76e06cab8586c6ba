"""Contract: the scan keeps the best candidates by exact score and number, whatever the first floors are. A guess that
is too high is found, and its query is searched again.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.relabel.topk.by_sorting import assert_equal, draw, search_by_sorting

from relabel.corpus import References
from relabel.topk.exact_scores import Sets
from relabel.topk.merge import TopK
from relabel.topk.scan import make_side, raise_floors, scan_tiles, write_best
from relabel.topk.screen import Screen, screen


@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize("floor", [-np.inf, 0.3, 2.0])
@pytest.mark.parametrize("copies", [1, 60])
def test_any_first_floor_gives_the_lists_of_the_reference(kind: Screen, floor: float, copies: int) -> None:
    vectors, keep = draw(700, 33, copies, zeros=0.02), 7
    held, sets, unknown = screen(vectors, kind), Sets.single(vectors, np.arange(700)), np.full(700, -np.inf)
    side = make_side(held, sets, held, np.full(700, floor), 20, 33)
    scan_tiles(side, side, "itself", 0, keep, 2)
    lists = TopK.empty(700, keep)
    write_best(side, unknown, lambda: [(0, side)], lists, range(700), range(700), 2)
    assert_equal(lists, search_by_sorting(vectors, References.single(np.arange(700)), np.arange(700), keep, "max"))


@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_a_sure_floor_is_reached_by_k_candidates(kind: Screen) -> None:
    vectors, keep = draw(300, 40), 10
    held, sets = screen(vectors, kind), Sets.single(vectors, np.arange(300))
    side = make_side(held, sets, held, np.full(300, -np.inf), 20, 40)
    raise_floors(side, held, 300, keep, 1, sure=True)
    reached = (vectors.astype(np.float64) @ vectors.astype(np.float64).T >= side.buffers.floor[:, None]).sum(axis=1)
    assert (side.buffers.floor > -np.inf).all()
    assert (reached >= keep).all()
