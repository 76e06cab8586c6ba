"""Forward passes of a transformer over tokenized texts, with OpenVINO on CPUs and torch on other devices.

A batch consists of texts of equal length, so it needs neither padding nor an attention mask. Without a mask, the graph
of a model is smaller, and OpenVINO fuses and quantises it better. OpenVINO runs one batch per CPU thread (a stream).
Threads do not wait for each other inside a layer, and a vector depends only on its batch.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Advance, Runtime, ignore_progress, pick_device
from relabel.sources.models.loading import first_line

if TYPE_CHECKING:
    from torch import nn

Features = Mapping[str, Sequence[Sequence[int]]]
"""Inputs of a transformer by name, such as `input_ids`: the tokens of each text."""
Outputs = NDArray[np.float32]
Forward = Callable[[Features, Advance], Outputs]
"""Inference function: takes the inputs of N texts, reports finished texts, and returns outputs, (N, D)."""

PROBES = (
    "A man with a red helmet on a small moped on a dirt road.",
    "Two dogs.",
    "TWO DOGS",
    "Two cats",
    "Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!",
    "a very " * 300 + "long row of parked bicycles",  # longer than the window of local attention
)
"""Texts for comparing a forward pass with the model's own code."""
_TOKENS = {"cpu": 2048, "cuda": 32_768}  # per batch
_HINTS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15, "int8": math.inf}  # int8 is checked when the model is quantised


def pick_forward(
    module: Callable[[], nn.Module],
    names: Sequence[str],
    probes: Callable[[], Features],
    expected: Outputs,
    dtype: str,
    runtime: Runtime,
) -> tuple[Forward | None, str, list[str]]:
    """Return the fastest forward pass with the expected outputs, its name, and why faster backends failed.

    If no backend gives the expected outputs, the forward pass is None, and the model's own code must be used.

    `module`: returns the model that maps `names`, (B, L) int64 each, to (B, D). `probes`: returns the inputs of a few
    texts. `expected`: outputs of the model's own code for them. The tolerance of an output is relative to its norm, or
    to 1 if the norm is smaller.
    """
    device, left_out = pick_device(runtime.device), list[str]()
    for name in ("openvino", "torch") if device == "cpu" else ("torch",):
        try:
            if name == "openvino":
                forward = openvino_forward(convert(module(), names), dtype, runtime.threads)
            else:
                forward = torch_forward(module(), device, dtype, runtime.threads)
            check_outputs(forward, probes(), expected, dtype)
        except Exception as error:  # OpenVINO is missing, cannot convert the model, or the model needs other inputs
            left_out.append(f"{name}: {first_line(error)}")
            continue
        return forward, name, left_out
    return None, "sentence-transformers", left_out


def check_outputs(forward: Forward, probes: Features, expected: Outputs, dtype: str) -> None:
    """Raise CheckError if the outputs of a forward pass for the probes differ from the expected ones."""
    scale = np.maximum(1, np.linalg.norm(expected, axis=1))
    difference = float(np.max(np.linalg.norm(forward(probes, ignore_progress) - expected, axis=1) / scale))
    if not difference < _TOLERANCE[dtype]:
        raise CheckError(f"an output differs by {difference:.2g}", hint="Use dtype float32.")


def product_type(dtype: str, device: str) -> str:
    """Return the dtype of products: float32 instead of bfloat16 if bfloat16 is not faster."""
    return "float32" if dtype == "bfloat16" and device == "cpu" and dtype not in fast_types() else dtype


@cache
def fast_types() -> list[str]:
    """Return the dtypes that this processor multiplies faster than float32.

    bfloat16 is faster with AMX, and on AMD with AVX-512 bf16. Without AMX, Intel processors multiply it at half the
    speed of float32. int8 is faster with VNNI.
    """
    text = ""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    bfloat16 = "amx_bf16" in text or ("AuthenticAMD" in text and "avx512_bf16" in text)
    return ["bfloat16"] * bfloat16 + ["int8"] * ("vnni" in text)


def torch_forward(model: nn.Module, device: str, dtype: str, threads: int) -> Forward:
    """Return the forward pass of a torch model."""
    import torch

    def forward(features: Features, advance: Advance) -> Outputs:
        outputs: dict[int, Outputs] = {}
        with torch.inference_mode(), products(device, dtype, threads):
            for numbers, inputs in batches(features, _TOKENS[device]):
                tensors = {name: torch.from_numpy(array).to(device) for name, array in inputs.items()}
                output = model(**tensors)
                # A transformers model returns a tuple of outputs.
                batch = output if isinstance(output, torch.Tensor) else output[0]
                outputs.update(zip(numbers.tolist(), batch.float().cpu().numpy(), strict=True))
                advance(len(numbers))
        return np.stack([outputs[i] for i in range(len(outputs))])

    return forward


def openvino_forward(model: Any | Path, dtype: str, threads: int) -> Forward:
    """Return the forward pass of an OpenVINO model or file, compiled with one stream per thread."""
    # Without a hint, OpenVINO uses bfloat16 if the processor supports it.
    options = {"INFERENCE_PRECISION_HINT": _HINTS[dtype], "NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads}
    queue = import_openvino().AsyncInferQueue(openvino_core().compile_model(model, "CPU", options), threads)

    def forward(features: Features, advance: Advance) -> Outputs:
        outputs: dict[int, Outputs] = {}

        def collect(request: Any, numbers: NDArray[np.int64]) -> None:
            # Copied, because the next batch reuses the memory of the request.
            outputs.update(zip(numbers.tolist(), request.get_output_tensor(0).data.copy(), strict=True))
            advance(len(numbers))

        queue.set_callback(collect)
        for numbers, inputs in batches(features, _TOKENS["cpu"]):
            queue.start_async(inputs, numbers)
        queue.wait_all()
        return np.stack([outputs[i] for i in range(len(outputs))])

    return forward


@contextmanager
def products(device: str, dtype: str, threads: int) -> Iterator[None]:
    """Let torch compute matrix products in bfloat16 or full float32, with the given number of threads."""
    import torch

    from relabel_train.tensors import full_float32

    mixed = torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
    with full_float32(), mixed, inner_threads(threads):
        yield


def convert(model: nn.Module, names: Sequence[str]) -> Any:
    """Convert a torch model with arguments `names`, (B, L) int64 each, to an OpenVINO model."""
    import torch

    example = {name: torch.ones((2, 8), dtype=torch.int64) for name in names}
    # Tracing warns about every data-dependent branch; the outputs are compared with torch afterwards.
    with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
        shapes = [(name, [-1, -1]) for name in names]
        return import_openvino().convert_model(model, example_input=example, input=shapes)


def import_openvino() -> Any:
    """Import OpenVINO without telemetry, which would send a message for every conversion."""
    # If this package cannot be imported, OpenVINO and nncf work and send nothing.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


@cache
def openvino_core() -> Any:
    """Return the only Core of this process. It is never destroyed.

    A Core replaces the signal stack and restores the previous one when it is destroyed. If several Cores are destroyed
    in another order, an unmapped stack remains, and the next signal crashes the process.
    """
    return import_openvino().Core()


def batches(features: Features, budget: int) -> Iterator[tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]]:
    """Group texts by length into batches of at most `budget` tokens (at least one text), in descending order of length.

    Yields the numbers of the texts of each batch, (B,) int64, and the inputs by name, (B, L) int64.
    """
    lengths = np.array([len(tokens) for tokens in next(iter(features.values()))], np.int64)
    for length in np.unique(lengths)[::-1].tolist():
        texts, step = np.flatnonzero(lengths == length), max(1, budget // max(1, length))
        for batch in (texts[a : a + step] for a in range(0, len(texts), step)):
            yield batch, {name: np.array([rows[i] for i in batch], np.int64) for name, rows in features.items()}
