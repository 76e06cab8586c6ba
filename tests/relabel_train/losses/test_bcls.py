"""Contract: BCLSLoss is the sum of its two named parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relabel_train.losses import BCLSLoss, SlidingWindowKendallLoss, TripletLoss


def test_is_the_sum_of_its_parts(batch: Any) -> None:
    inputs = (batch.scores, batch.relevance, batch.same_image)
    triplet, kendall = TripletLoss(negatives="soft")(*inputs), SlidingWindowKendallLoss()(*inputs)
    torch.testing.assert_close(BCLSLoss()(*inputs), triplet + kendall)
    torch.testing.assert_close(BCLSLoss(weight=3)(*inputs), triplet + 3 * kendall)
    assert set(BCLSLoss().terms(*inputs)) == {f"{p}.{p}_{d}" for p in ("triplet", "kendall") for d in ("i2t", "t2i")}


def test_without_the_kendall_part(batch: Any) -> None:
    assert BCLSLoss(weight=0)(batch.scores, batch.relevance).item() == pytest.approx(
        TripletLoss(negatives="soft")(batch.scores, batch.relevance).item()
    )
