"""Batch normalisation whose statistics are those of the complete batch, also if several processes share it."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce


class SharedBatchNorm1d(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` of (N, C) values; in a process group, N counts the values of all processes.

    It serves every device and backend. `torch.nn.SyncBatchNorm` is for GPUs alone. Processes may hold different numbers
    of values. Gradients are those of one process with all values, given that `DistributedDataParallel` averages the
    gradients of parameters.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Normalise (N, C) values."""
        if not (self.training and _several()):
            return super().forward(values)
        with torch.autocast(values.device.type, enabled=False):
            x = values.float()
            # The mean first: the difference of mean square and squared mean would lose digits.
            sums = total_of_processes(torch.cat([x.sum(dim=0), x.new_full((1,), len(x))]))
            count = sums[-1].detach()
            centred = x - sums[:-1] / count
            variance = total_of_processes(centred.square().sum(dim=0)) / count
            self._track(sums[:-1].detach() / count, variance.detach() * count / (count - 1).clamp(min=1))
            out: Tensor = centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias
            return out

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch; the variance is the unbiased one."""
        assert self.running_mean is not None and self.running_var is not None  # noqa: PT018
        assert self.momentum is not None and self.num_batches_tracked is not None  # noqa: PT018
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def total_of_processes(values: Tensor) -> Tensor:
    """Add the tensors of all processes, if there are several; the gradient is added up as well."""
    if not _several():
        return values
    total: Tensor = all_reduce(values)  # type: ignore[no-untyped-call]
    return total
