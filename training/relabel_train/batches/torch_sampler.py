"""Samplers and batch plans for torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset
from torch.utils.data import Sampler as TorchSampler

from relabel_train.batches.base import Sampler, batches_of_process
from relabel_train.batches.plan import Batch, Plan


class TorchBatchSampler(TorchSampler[list[int]]):
    """Sampler for ``DataLoader(batch_sampler=...)``: lists of caption rows, epoch by epoch.

    Call `set_epoch` before every epoch. A DataLoader reads ahead, so only the trainer knows how many batches are done:
    store ``state_dict(done)`` in a checkpoint.

    `rank`, `world_size`, `even`: as in Sampler.batches.
    """

    def __init__(self, sampler: Sampler, rank: int = 0, world_size: int = 1, *, even: bool = True) -> None:
        self.sampler, self.rank, self.world_size, self.even = sampler, rank, world_size, even
        self.epoch = self.done = 0
        # Raises now, and not in a worker, if the rank is not in the group.
        batches_of_process(len(sampler), rank, world_size, even=even)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch; it starts with its first batch or, after `load_state_dict`, where the checkpoint was."""
        if epoch != self.epoch:
            self.epoch, self.done = epoch, 0

    def __iter__(self) -> Iterator[list[int]]:
        batches = self.sampler.batches(self.epoch, self.rank, self.world_size, even=self.even)
        # Batches done before the checkpoint are skipped once; the next epoch starts at its first.
        start, self.done = self.done, 0
        for rows in batches[start:]:
            yield rows.tolist()

    def __len__(self) -> int:
        return len(batches_of_process(len(self.sampler), self.rank, self.world_size, even=self.even)) - self.done

    def state_dict(self, done: int) -> dict[str, Any]:
        """Return the state after `done` batches of this epoch."""
        return {"epoch": self.epoch, "done": done, "sampler": self._identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the state of a checkpoint."""
        if state["sampler"] != self._identity:
            raise ValueError(f"the checkpoint's batches are of {state['sampler']}, these of {self._identity}")
        self.epoch, self.done = int(state["epoch"]), int(state["done"])

    @property
    def _identity(self) -> dict[str, Any]:
        """Everything that determines this process's batches, except its rank."""
        group = {"captions": len(self.sampler.captions), "world_size": self.world_size, "even": self.even}
        return self.sampler.parameters | group


class PlanDataset(Dataset[Batch]):
    """Batches of a plan as tensors, in order: ``DataLoader(PlanDataset(plan, epoch), batch_size=None)``.

    `epoch`: all epochs in order by default. `rank`, `world_size`, `even`: as in Sampler.batches, per epoch.
    """

    def __init__(
        self, plan: Plan, epoch: int | None = None, rank: int = 0, world_size: int = 1, *, even: bool = True
    ) -> None:
        self.plan = plan
        epochs = range(plan.epochs) if epoch is None else [epoch]
        self.numbers = torch.tensor([n for e in epochs for n in plan.epoch(e, rank, world_size, even=even)])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Batch:
        return self.plan.tensors(int(self.numbers[index]))
