"""Contract: a worker's small tensors arrive by value and large ones through shared memory, as ordinary tensors that may
be written; outside workers a tensor stays itself."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from relabel_train.tensors import sendable


class Squares(Dataset):  # type: ignore[type-arg]
    """Tensors of some side, as a collate function makes them in a worker."""

    def __init__(self, side: int, dtype: torch.dtype) -> None:
        self.side, self.dtype = side, dtype

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        square = sendable(torch.full((self.side, self.side), index, dtype=self.dtype))
        # Steps behind the collate see a tensor too.
        return {"square": square, "doubled": square + square, "copy": deepcopy(square)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
@pytest.mark.parametrize(("side", "shared"), [(4, False), (1100, True)])
def test_tensors_arrive_as_ordinary_ones(side: int, shared: bool, dtype: torch.dtype) -> None:
    loader = DataLoader(Squares(side, dtype), batch_size=None, num_workers=1)
    for index, batch in enumerate(loader):
        square = batch["square"]
        assert type(square) is torch.Tensor
        assert square.dtype == dtype
        assert square.is_shared() == shared
        expected = torch.full((side, side), index, dtype=dtype)
        assert all(map(torch.equal, batch.values(), (expected, expected + expected, expected)))
        square.fill_(1)


def test_a_tensor_of_the_training_process_stays_itself() -> None:
    tensor = torch.eye(3)
    assert sendable(tensor) is tensor
