"""faiss indexes of vectors: validation of factory strings; training and filling, on a GPU if available."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Device

MAX_GPU_NEIGHBOURS = 2048
"""Maximum number of results per query of faiss's GPU indexes."""
_BAD_INDEX = re.compile(
    r"(?<![0-9])0+(?![0-9])|[0-9]{8}|(?:HNSW|NSG|NNDescent)(?:[01]|[0-9]{4,})(?![0-9])|\0", re.ASCII
)
_SHOWN = 100  # maximum number of characters of a factory string in a message


def import_faiss() -> Any:
    """Import faiss, or raise a MissingError that names the extras with it."""
    try:
        import faiss
    except ModuleNotFoundError as error:
        hint = "Run `pip install 'relabel-itr[cpu]'`, or 'relabel-itr[gpu]' on a machine with a CUDA GPU."
        raise MissingError("faiss is not installed; vector indexes need it", hint=hint) from error
    return faiss


def make_index(factory: str, width: int, by_id: bool = False) -> Any:
    """Create an empty faiss index for inner products. Also called to validate a factory string before long work.

    `factory`: string for `faiss.index_factory`, optionally with search parameters after a semicolon:
    `IVF1024,Flat;nprobe=32`, `HNSW32,Flat;efSearch=64`. `width`: dimension D of the vectors. `by_id`: whether the index
    stores ids of its vectors; otherwise a vector is identified by its position.
    """
    faiss = import_faiss()
    # faiss aborts the process for a graph without links, so these strings are rejected here.
    if _BAD_INDEX.search(factory):
        hint = "Use numbers from 1 to 9,999,999, and 2 to 999 links for a graph."
        raise UsageError(f"faiss cannot build index {factory[:_SHOWN]!r}", hint=hint)
    structure, _, search_parameters = factory.partition(";")
    # Only inverted lists store ids themselves.
    wrapped = by_id and structure and not re.search("IVF|IDMap", structure)
    with _index_errors(factory):
        index = faiss.index_factory(width, f"IDMap2,{structure}" if wrapped else structure, faiss.METRIC_INNER_PRODUCT)
        # Set on the index, so they are saved with it and copied to a GPU.
        if search_parameters:
            faiss.ParameterSpace().set_index_parameters(index, search_parameters)
    return index


def change_index(index: Any, factory: str, device: Device, change: Callable[[Any], object]) -> Any:
    """Call `change` to train or fill an index, and return the index in main memory.

    Inverted lists are moved to a GPU for this, if there is one. Other types do not benefit: faiss does not support
    graphs on GPUs, and the rest only copy the vectors.
    """
    faiss = import_faiss()
    threads = faiss.omp_get_max_threads()
    # With more threads, the order of sums in training and the links of graphs would vary between runs.
    faiss.omp_set_num_threads(1)
    try:
        with _index_errors(factory):
            place = to_device(index, device) if "IVF" in factory else index
            change(place)
            return place if place is index else faiss.index_gpu_to_cpu(place)
    finally:
        faiss.omp_set_num_threads(threads)


def to_device(index: Any, device: Device) -> Any:
    """Return a copy of an index on the GPU, or the index itself if there is no GPU or the GPU does not support it.

    `device`: `cpu` returns the index itself.
    """
    faiss = import_faiss()
    # faiss-cpu reports 0 GPUs and does not have the functions below.
    if device == "cpu" or not faiss.get_num_gpus():
        return index
    try:
        return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    except RuntimeError:
        # Raised for graphs, unsupported encodings, and indexes larger than the GPU's memory.
        return index


@contextmanager
def _index_errors(factory: str) -> Iterator[None]:
    """Convert errors of faiss into a UsageError with the factory string."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # faiss prefixes messages with a C++ file, a line number and the failed condition.
        reason = re.split(r"\.(?:cpp|h):\d+: (?:Error: .* failed: )?", str(error))[-1]
        message = f"faiss rejects index {factory[:_SHOWN]!r}: {reason}"
        raise UsageError(message, hint="Use `Flat` for exact search.") from error
