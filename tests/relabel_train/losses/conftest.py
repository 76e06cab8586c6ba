"""A single thread for small tensors, and irregular batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.relabel_train.losses.batches import IRREGULAR, Batch


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=range(3))
def batch(request: pytest.FixtureRequest) -> Batch:
    return IRREGULAR[request.param]
