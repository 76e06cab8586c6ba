"""Forward passes of a transformer over tokenized texts: by OpenVINO on CPUs, by torch elsewhere.

Texts of equal length share a batch, so a batch needs neither padding nor an attention mask. A model without a mask has
a smaller graph, which OpenVINO fuses and quantises better. It runs one batch per CPU thread at a time (a stream), so
that threads never wait for each other inside a layer, and a vector depends on its batch only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from relabel.core.numeric.threads import inner_threads
from relabel_train.tensors import full_float32

Features = Mapping[str, Sequence[Sequence[int]]]
"""Inputs of a transformer by name, such as `input_ids`: the tokens of each text."""
Done = Callable[[NDArray[np.int64]], None]
"""Callback that takes the numbers of the texts of a batch that is done."""
Outputs = NDArray[np.float32]

_TOKENS = {"cpu": 2048, "cuda": 32_768}  # per batch
_HINTS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}


class Forward(Protocol):
    """A model in inference, with (N, D) float32 outputs of N texts."""

    def __call__(self, features: Features, done: Done) -> Outputs:
        """Return the outputs of N texts."""
        ...


class TorchForward:
    """A model of torch. `model`: maps inputs by name, (B, L) int64, to (B, D)."""

    def __init__(self, model: Callable[[dict[str, torch.Tensor]], torch.Tensor], device: str, dtype: str, threads: int):
        self.model, self.device, self.dtype, self.threads = model, device, dtype, threads

    def __call__(self, features: Features, done: Done) -> Outputs:
        """Return the outputs of N texts."""
        outputs: dict[int, Outputs] = {}
        with torch.inference_mode(), products(self.device, self.dtype), inner_threads(self.threads):
            for numbers, inputs in batches(features, _TOKENS[self.device]):
                tensors = {name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()}
                batch = self.model(tensors).float().cpu().numpy()
                outputs.update(zip(numbers.tolist(), batch, strict=True))
                done(numbers)
        return _stack(outputs)


class OpenVinoForward:
    """A model of OpenVINO, with one stream per thread."""

    def __init__(self, model: Any, dtype: str, threads: int) -> None:
        openvino = import_openvino()
        # Without a hint, OpenVINO takes bfloat16 where the processor has it.
        options = {"INFERENCE_PRECISION_HINT": _HINTS[dtype], "NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads}
        self._compiled = openvino_core().compile_model(model, "CPU", options)
        self._queue = openvino.AsyncInferQueue(self._compiled, threads)

    def __call__(self, features: Features, done: Done) -> Outputs:
        """Return the outputs of N texts."""
        outputs: dict[int, Outputs] = {}

        def collect(request: Any, numbers: NDArray[np.int64]) -> None:
            # The request's memory is used again by the next batch.
            outputs.update(zip(numbers.tolist(), request.get_output_tensor(0).data.copy(), strict=True))
            done(numbers)

        self._queue.set_callback(collect)
        for numbers, inputs in batches(features, _TOKENS["cpu"]):
            self._queue.start_async(inputs, numbers)
        self._queue.wait_all()
        return _stack(outputs)


@contextmanager
def products(device: str, dtype: str) -> Iterator[None]:
    """Compute torch's matrix products in bfloat16, or in complete float32, within the context."""
    with full_float32(), torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else nullcontext():
        yield


def convert(model: nn.Module, names: Sequence[str]) -> Any:
    """Convert a model of torch, whose arguments are `names`, (B, L) int64 each, into one of OpenVINO."""
    openvino = import_openvino()
    example = {name: torch.ones((2, 8), dtype=torch.int64) for name in names}
    # Tracing warns of each branch that the example decides; a comparison with torch finds those that matter.
    with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
        return openvino.convert_model(model, example_input=example, input=[(name, [-1, -1]) for name in names])


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which would send a message at every conversion."""
    # OpenVINO and nncf work without this package, and report nothing where it cannot be imported.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


@cache
def openvino_core() -> Any:
    """Return the one Core of this process, which lives until its end.

    A Core sets the stack for signals and restores the one before when it is destroyed. Several Cores that end in
    another order leave a stack that is no longer mapped, on which the next signal ends the process.
    """
    return import_openvino().Core()


def read_openvino(file: Path) -> Any:
    """Read a model of OpenVINO from its `.xml` file; the weights lie in a `.bin` file beside it."""
    return openvino_core().read_model(file)


def batches(features: Features, budget: int) -> list[tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]]:
    """Group texts by length into batches of at most `budget` tokens (at least one text), the longest first.

    Returns the numbers of the texts of each batch, (B,) int64, and its inputs by name, (B, L) int64.
    """
    lengths = np.array([len(tokens) for tokens in next(iter(features.values()))], np.int64)
    found = []
    for length in np.unique(lengths)[::-1].tolist():
        texts, step = np.flatnonzero(lengths == length), max(1, budget // max(1, length))
        for part in (texts[a : a + step] for a in range(0, len(texts), step)):
            arrays = {name: np.array([rows[i] for i in part], np.int64) for name, rows in features.items()}
            found.append((part, arrays))
    return found


def _stack(outputs: Mapping[int, Outputs]) -> Outputs:
    return np.stack([outputs[i] for i in range(len(outputs))])
