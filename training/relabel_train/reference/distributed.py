"""Training in one or several processes: torchrun's variables, and an all-gather of embeddings with exact gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather

from relabel_train.reference.options import FitError


@dataclass(frozen=True)
class Processes:
    """Rank of the process in its group, and the device."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """True for the process that writes files."""
        return self.rank == 0

    def share(self, value: float) -> float:
        """Return the first process's number in all processes."""
        if self.world == 1:
            return value
        number = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(number, 0)
        return float(number)

    def gather(self, vectors: Tensor, count: int) -> Tensor:
        """Concatenate the processes' shares of a batch of `count` pairs, cut as by `numpy.array_split`: (count, ...).

        The gradient of a share is the sum of its gradients in all processes. Every process computes the same loss, so
        it is that of one process times the number of processes, by which DistributedDataParallel divides it.
        """
        if self.world == 1:
            return vectors
        sizes = [count // self.world + (rank < count % self.world) for rank in range(self.world)]
        # all_gather needs equal shapes: shares are padded to the longest one, and cut again.
        padding = vectors.new_zeros(max(sizes) - len(vectors), *vectors.shape[1:])
        gathered = all_gather(torch.cat([vectors, padding]))  # type: ignore[no-untyped-call]
        return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])


def launched() -> tuple[int, int]:
    """Return this process's rank and the number of processes set by torchrun; 0 and 1 without torchrun."""
    # Some clusters set RANK for a single process: only WORLD_SIZE above 1 is a group.
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ.get("RANK", "0")), world) if world > 1 else (0, 1)


def _local_rank(rank: int) -> int:
    """Return the rank of this process on its machine, as torchrun or Slurm set it; else its rank among all."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    return rank


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the process group of torchrun, or yield a group of one."""
    rank, world = launched()
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise FitError("torch sees no CUDA device; use --device cpu, or install a torch built for CUDA")
    on_gpu = has_gpu and device != "cpu"
    place = torch.device("cuda", _local_rank(rank) % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
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
