"""One process or several: torchrun's variables, and embeddings of the whole batch with gradients that are exact."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from relabel_train.training.errors import FitError


@dataclass(frozen=True)
class Processes:
    """One process among all.

    Attributes
    ----------
    rank, world : int
    device : torch.device
    """

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def share(self, value: float) -> float:
        """Take a number of the first process in all."""
        if self.world == 1:
            return value
        held = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(held, 0)
        return float(held)

    def gather(self, vectors: Tensor, count: int) -> Tensor:
        """Join each process's share of a batch of `count` pairs, cut as `numpy.array_split` does: (count, E).

        Every process then takes the same loss of the same matrix, so the gradient of its own share is already the
        whole one. It is multiplied by the number of processes, since DistributedDataParallel averages: what comes out
        is the gradient of one process with the whole batch.
        """
        if self.world == 1:
            return vectors
        found: Tensor = _Gather.apply(vectors, count, self.rank, self.world)
        return found

    def barrier(self) -> None:
        """Wait for all."""
        if self.world > 1:
            dist.barrier()


def launched() -> tuple[int, int]:
    """Return this process's rank and how many there are, as torchrun says; 0 and 1 where it did not start them."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ.get("RANK", "0")), world) if world > 1 else (0, 1)


@contextmanager
def processes(device: str) -> Iterator[Processes]:
    """Join the group that torchrun started; alone where it did not.

    Raises
    ------
    FitError
        If a GPU is asked for and there is none.
    """
    rank, world = launched()
    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise FitError("torch sees no CUDA device; use --device cpu, or install a torch built for CUDA")
    on_gpu = there and device != "cpu"
    place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(place)
    if world == 1:
        yield Processes(0, 1, place)
        return
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield Processes(rank, world, place)
    finally:
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, count: int, rank: int, world: int) -> Tensor:
        sizes = [count // world + (r < count % world) for r in range(world)]
        padded = vectors.new_zeros(max(sizes), vectors.shape[1])
        padded[: len(vectors)] = vectors
        held = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(held, padded)
        start = sum(sizes[:rank])
        ctx.mine, ctx.world = slice(start, start + sizes[rank]), world
        return torch.cat([part[:size] for part, size in zip(held, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return gradients[0][ctx.mine] * ctx.world, None, None, None
