"""Contract: a typical cost grows with the number of captions, and a stage that was not measured has none."""

from __future__ import annotations

import pytest

from relabel.sources.base import COCO_CAPTIONS, TypicalCost

COST = TypicalCost(encode_bytes=10, encode_seconds=0.5, export_bytes=20, export_seconds=0.25, neighbours_seconds=300)


def test_encodings_and_lookups_grow_with_the_captions() -> None:
    assert COST.estimate("encode", 1_000, 100) == (10_000, 500.0)
    assert COST.estimate("export", 1_000, 100) == (1_000 * (20 + 800 + 50), 250.0)


def test_neighbours_take_the_measured_time_on_coco_and_more_than_linear_time_beyond() -> None:
    at_coco, twice = (COST.estimate("neighbours", n * COCO_CAPTIONS, 100) for n in (1, 2))
    assert at_coco is not None
    assert twice is not None
    assert at_coco == (COCO_CAPTIONS * 870, pytest.approx(300))
    assert 600 < twice[1] < 1200


def test_a_caption_has_at_most_all_others_as_neighbours() -> None:
    assert COST.estimate("neighbours", 5, 100) == COST.estimate("neighbours", 5, 4)


def test_a_stage_that_was_not_measured_has_no_cost() -> None:
    encoded_only = TypicalCost(encode_bytes=10, encode_seconds=0.5)
    assert [encoded_only.estimate(stage, 9, 3) for stage in ("neighbours", "export", "judge")] == [None] * 3
