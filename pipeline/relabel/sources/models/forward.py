"""Forward passes of a transformer over tokenized texts: by OpenVINO on CPUs, by torch elsewhere.

Texts of equal length share a batch, so a batch needs neither padding nor an attention mask. A model without a mask has
a smaller graph, which OpenVINO fuses and quantises better. It runs one batch per CPU thread at a time (a stream), so
that threads never wait for each other inside a layer, and a vector depends on its batch only.
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
"""A model in inference: takes the inputs of N texts, reports texts that are done, and returns (N, D) outputs."""

PROBES = (
    "A man with a red helmet on a small moped on a dirt road.",
    "Two dogs.",
    "TWO DOGS",
    "Two cats",
    "Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!",
    "a very " * 300 + "long row of parked bicycles",  # beyond the window of local attention
)
"""Texts on which a forward pass is compared with a model's own code."""
_TOKENS = {"cpu": 2048, "cuda": 32_768}  # per batch
_HINTS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15, "int8": math.inf}  # int8 is compared when it is made


def pick_forward(
    module: Callable[[], nn.Module],
    names: Sequence[str],
    probes: Callable[[], Features],
    expected: Outputs,
    dtype: str,
    runtime: Runtime,
) -> tuple[Forward | None, str, list[str]]:
    """Return the fastest forward pass that gives a model's own outputs, its name, and why faster ones do not.

    None is the model's own code.

    `module`: returns the model, which maps `names`, (B, L) int64 each, to (B, D). `probes`: returns the inputs of a few
    texts. `expected`: the outputs of the model's own code for them; an output may differ by a part of its norm, or of 1
    if that is larger.
    """
    device, left_out = pick_device(runtime.device), list[str]()
    for name in ("openvino", "torch") if device == "cpu" else ("torch",):
        try:
            if name == "openvino":
                forward = openvino_forward(convert(module(), names), dtype, runtime.threads)
            else:
                forward = torch_forward(module(), device, dtype, runtime.threads)
            check_outputs(forward, probes(), expected, dtype)
        except Exception as error:  # openvino is missing, or cannot convert the model, or it needs other inputs
            left_out.append(f"{name}: {first_line(error)}")
            continue
        return forward, name, left_out
    return None, "sentence-transformers", left_out


def check_outputs(forward: Forward, probes: Features, expected: Outputs, dtype: str) -> None:
    """Raise CheckError if a forward pass differs from the outputs of the model's own code for the probes."""
    scale = np.maximum(1, np.linalg.norm(expected, axis=1))
    difference = float(np.max(np.linalg.norm(forward(probes, ignore_progress) - expected, axis=1) / scale))
    if not difference < _TOLERANCE[dtype]:
        raise CheckError(f"an output is off by {difference:.2g}", todo="Use dtype float32.")


def product_type(dtype: str, device: str) -> str:
    """Return the type in which products are computed: float32 instead of a bfloat16 that is not faster."""
    return "float32" if dtype == "bfloat16" and device == "cpu" and dtype not in fast_types() else dtype


@cache
def fast_types() -> list[str]:
    """Return the types that this processor multiplies faster than float32.

    bfloat16 is one with AMX, and on AMD with AVX-512 bf16: without AMX, Intel processors multiply it at half the rate
    of float32. int8 is one with VNNI.
    """
    text = ""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    bfloat16 = "amx_bf16" in text or ("AuthenticAMD" in text and "avx512_bf16" in text)
    return ["bfloat16"] * bfloat16 + ["int8"] * ("vnni" in text)


def torch_forward(model: nn.Module, device: str, dtype: str, threads: int) -> Forward:
    """Run a model of torch."""
    import torch

    def forward(features: Features, advance: Advance) -> Outputs:
        outputs: dict[int, Outputs] = {}
        with torch.inference_mode(), products(device, dtype, threads):
            for numbers, inputs in batches(features, _TOKENS[device]):
                tensors = {name: torch.from_numpy(array).to(device) for name, array in inputs.items()}
                output = model(**tensors)
                # A model of transformers returns its outputs with further ones.
                batch = output if isinstance(output, torch.Tensor) else output[0]
                outputs.update(zip(numbers.tolist(), batch.float().cpu().numpy(), strict=True))
                advance(len(numbers))
        return np.stack([outputs[i] for i in range(len(outputs))])

    return forward


def openvino_forward(model: Any | Path, dtype: str, threads: int) -> Forward:
    """Compile a model of OpenVINO, or one that was saved to a file, with one stream per thread."""
    # Without a hint, OpenVINO takes bfloat16 where the processor has it.
    options = {"INFERENCE_PRECISION_HINT": _HINTS[dtype], "NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads}
    queue = import_openvino().AsyncInferQueue(openvino_core().compile_model(model, "CPU", options), threads)

    def forward(features: Features, advance: Advance) -> Outputs:
        outputs: dict[int, Outputs] = {}

        def collect(request: Any, numbers: NDArray[np.int64]) -> None:
            # The request's memory is used again by the next batch.
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
    """Compute torch's matrix products in bfloat16, or in complete float32, on a number of threads."""
    import torch

    from relabel_train.tensors import full_float32

    mixed = torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
    with full_float32(), mixed, inner_threads(threads):
        yield


def convert(model: nn.Module, names: Sequence[str]) -> Any:
    """Convert a model of torch, whose arguments are `names`, (B, L) int64 each, into one of OpenVINO."""
    import torch

    example = {name: torch.ones((2, 8), dtype=torch.int64) for name in names}
    # Tracing warns of each branch that the example decides; a comparison with torch finds those that matter.
    with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
        shapes = [(name, [-1, -1]) for name in names]
        return import_openvino().convert_model(model, example_input=example, input=shapes)


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


def batches(features: Features, budget: int) -> Iterator[tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]]:
    """Group texts by length into batches of at most `budget` tokens (at least one text), the longest first.

    Yields the numbers of the texts of each batch, (B,) int64, and its inputs by name, (B, L) int64.
    """
    lengths = np.array([len(tokens) for tokens in next(iter(features.values()))], np.int64)
    for length in np.unique(lengths)[::-1].tolist():
        texts, step = np.flatnonzero(lengths == length), max(1, budget // max(1, length))
        for part in (texts[a : a + step] for a in range(0, len(texts), step)):
            yield part, {name: np.array([rows[i] for i in part], np.int64) for name, rows in features.items()}
