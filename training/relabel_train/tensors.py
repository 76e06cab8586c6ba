"""Tensors that a worker of a data loader sends to the training process, and products in full precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

_LARGEST = 1 << 20
"""Maximum bytes of a tensor that is sent by value; a larger one is copied faster through shared memory."""


def sendable(tensor: Tensor) -> Tensor:
    """Return a tensor that reaches the training process quickly.

    torch moves a worker's tensors to shared memory and opens one connection between the processes for each. A small
    tensor is cheaper inside the message of its batch. It arrives as an ordinary tensor.

    `tensor`: on the CPU, without gradient.
    """
    if get_worker_info() is None or tensor.nbytes > _LARGEST:
        return tensor
    return tensor.as_subclass(_SentByValue)


@contextmanager
def full_float32() -> Iterator[None]:
    """Multiply float32 matrices in full precision, whatever the program allows: TF32 keeps three digits.

    The setting is one of the process. Threads that multiply meanwhile do so in full precision, too.
    """
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # torch before 2.9
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
        return
    # Reading the setting of all backends at once raises if the program has set that of one backend.
    mkldnn: Any = torch.backends.mkldnn
    backends: list[Any] = [torch.backends.cuda.matmul, mkldnn.matmul]
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        for backend, setting in zip(backends, before, strict=True):
            backend.fp32_precision = setting


class _SentByValue(Tensor):
    """Tensor that is pickled with its values; results of operations are ordinary tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return torch.from_numpy, (self.numpy(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.clone()
