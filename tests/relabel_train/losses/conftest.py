"""Irregular batches."""

from __future__ import annotations

import pytest
from tests.relabel_train.losses.batches import IRREGULAR, Batch


@pytest.fixture(params=IRREGULAR, ids=["0", "1", "2"])
def batch(request: pytest.FixtureRequest) -> Batch:
    drawn: Batch = request.param
    return drawn
