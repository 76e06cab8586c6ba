"""faiss indexes of vectors: checked factory strings, and training and filling on the GPU where there is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Device

MAX_GPU_NEIGHBOURS = 2048
"""Largest number of results per query that faiss's GPU indexes return."""
_BAD_INDEX = re.compile(
    r"(?<![0-9])0+(?![0-9])|[0-9]{8}|(?:HNSW|NSG|NNDescent)(?:[01]|[0-9]{4,})(?![0-9])|\0", re.ASCII
)
_SHOWN = 100  # longest part of a factory string that a message shows


def import_faiss() -> Any:
    """Import faiss, which either of two extras installs."""
    try:
        import faiss
    except ModuleNotFoundError as error:
        todo = "Run `pip install 'relabel-itr[cpu]'`, or 'relabel-itr[gpu]' on a machine with a CUDA GPU."
        raise MissingError("an index of vectors needs faiss, which is not installed", todo=todo) from error
    return faiss


def make_index(factory: str, width: int, by_id: bool = False) -> Any:
    """Make an empty faiss index for inner products. Callers also use it to check a factory string before long work.

    `factory`: index factory string, as `faiss.index_factory` takes it. Parameters of the search may follow a semicolon:
    `IVF1024,Flat;nprobe=32`, `HNSW32,Flat;efSearch=64`. `width`: dimension D of the vectors. `by_id`: whether the index
    holds ids of its vectors; without, a vector is identified by its position.
    """
    faiss = import_faiss()
    # faiss aborts the process on a graph without links, so such strings never reach it.
    if _BAD_INDEX.search(factory):
        todo = "Use numbers from 1 to 9,999,999, and 2 to 999 links for a graph."
        raise UsageError(f"faiss cannot build index {factory[:_SHOWN]!r}", todo=todo)
    structure, _, search_parameters = factory.partition(";")
    # Of all types, the inverted lists alone hold ids themselves.
    wrapped = by_id and structure and not re.search("IVF|IDMap", structure)
    with _index_errors(factory):
        index = faiss.index_factory(width, f"IDMap2,{structure}" if wrapped else structure, faiss.METRIC_INNER_PRODUCT)
        # The index carries them: they are stored with it and copied to a GPU.
        if search_parameters:
            faiss.ParameterSpace().set_index_parameters(index, search_parameters)
    return index


def change_index(index: Any, factory: str, device: Device, change: Callable[[Any], object]) -> Any:
    """Train or fill an index by a function; return it in main memory.

    Inverted lists are changed on the GPU where there is one. faiss has no GPU version of graphs, and all others only
    copy the vectors.
    """
    faiss = import_faiss()
    threads = faiss.omp_get_max_threads()
    # One thread: with more, training sums in another order and graphs grow differently from run to run.
    faiss.omp_set_num_threads(1)
    try:
        with _index_errors(factory):
            place = to_device(index, device) if "IVF" in factory else index
            change(place)
            return place if place is index else faiss.index_gpu_to_cpu(place)
    finally:
        faiss.omp_set_num_threads(threads)


def to_device(index: Any, device: Device) -> Any:
    """Return a copy of an index on the GPU; the index itself if faiss sees no GPU or has no GPU version of it.

    `device`: cpu returns the index itself.
    """
    faiss = import_faiss()
    # faiss-cpu counts no GPU, and has none of the functions below.
    if device == "cpu" or not faiss.get_num_gpus():
        return index
    try:
        return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    except RuntimeError:
        # A graph, an encoding without a GPU version, or an index larger than the GPU's memory.
        return index


@contextmanager
def _index_errors(factory: str) -> Iterator[None]:
    """Turn errors of faiss while it makes, trains or fills an index into a UsageError with the factory string."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # faiss prefixes messages with a C++ file, a line number and the failed condition.
        reason = re.split(r"\.(?:cpp|h):\d+: (?:Error: .* failed: )?", str(error))[-1]
        message = f"faiss refuses index {factory[:_SHOWN]!r}: {reason}"
        raise UsageError(message, todo="Use `Flat` for exact search.") from error
