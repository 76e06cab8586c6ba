"""Resources, folders and progress display of a run. Fingerprints never depend on them."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from relabel.core.errors import MissingError

T = TypeVar("T")
Advance = Callable[[int], None]
"""Callback that receives the amount of work done since the last call."""


def ignore_progress(n: int) -> None:
    """Do nothing: the `Advance` of callers that show no progress."""


class ProgressBar:
    """Progress of one activity with a known total. This base class shows nothing."""

    def advance(self, n: int = 1) -> None:
        """Add n to the amount of work done."""

    def reach(self, total: int) -> None:
        """Raise the amount of work done to at least `total`."""


class Progress:
    """Display of progress. This base class shows nothing and serves library calls."""

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Open a progress bar of `total` units."""
        yield ProgressBar()

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Show an activity of unknown length, such as an import, loading a model or starting a program."""
        yield

    def advance(self, n: int) -> None:
        """Add n to the innermost open bar, if there is one."""

    @contextmanager
    def artefacts(self, seconds: Mapping[Path, float]) -> Iterator[None]:
        """Show the progress of several artefacts. `seconds`: expected times in order; 0 if unknown or finished."""
        yield

    def made(self, out: Path, text: str) -> None:
        """Show one line about a finished artefact, and count it."""

    def note(self, text: str) -> None:
        """Show one line about work that was done or skipped."""


SILENT = Progress()


Device = Literal["auto", "cpu", "cuda"]


def default_data() -> Path:
    """Return the folder of fetched files: $RELABEL_DATA if set, otherwise ./data."""
    return Path(os.environ.get("RELABEL_DATA", "data"))


def default_threads() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_size(text: str) -> int:
    """Parse a number of bytes: `4GiB`, `512MiB`, `2.5GB`, `4G` (as GiB), `1000000`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)(I?B)?", text.strip().upper(), re.ASCII)
    if match is None:
        raise ValueError(f"expected an amount of memory such as 4GiB or 512MiB, found {text[:40]!r}")
    # Only units such as `MB` are powers of 1000; `M` and `MiB` are powers of 1024.
    return int(float(match[1]) * (1000 if match[3] == "B" else 1024) ** " KMGT".index(match[2] or " "))


ROWS_PER_SHARD = 50_000
"""Captions or queries per file of an artefact. An interruption repeats one file: seconds to minutes of work."""


@dataclass(frozen=True)
class Runtime:
    """Resources and folders of a run.

    `data`: folder of fetched and tuned assets, with one folder per dataset or model (`data/glove/...`).
    `threads`: number of CPU threads, divided among local workers.
    `memory`: bytes that a stage may use in addition to the files that it must read completely. Divided among local
        workers; each worker of a scheduler may use the full amount.
    `workers`: number of local worker processes. 0 runs all tasks in this process.
    `scheduler`: address of a Dask scheduler (`tcp://...`). Its workers must share this file system.
    `shard`: (i, n): this process runs every n-th task from the i-th, counted from 1. None runs all tasks.
    `rebuild`: whether to rebuild artefacts that are up to date.
    `retry_failed`: whether to rebuild artefacts with failed rows.
    `kept`: cache of loaded models and programs for later calls. None disables it.
    `rows_per_shard`: `ROWS_PER_SHARD`, or fewer in tests. Workers receive it with the runtime.
    """

    data: Path = field(default_factory=default_data)
    device: Device = "auto"
    threads: int = field(default_factory=default_threads)
    memory: int = 4 << 30
    workers: int = 0
    scheduler: str | None = None
    shard: tuple[int, int] | None = None
    rebuild: bool = False
    retry_failed: bool = False
    progress: Progress = SILENT
    kept: dict[Any, Any] | None = field(default=None, compare=False, repr=False)
    rows_per_shard: int = field(default_factory=lambda: ROWS_PER_SHARD)

    def keep(self, key: Any, make: Callable[[], T], name: str | None = None) -> T:
        """Return `make()`, cached under `key`. `name`: shown by the progress display during loading."""
        if self.kept is None or key not in self.kept:
            with self.progress.status(f"loading {name}") if name else nullcontext():
                value = make()
            if self.kept is None:
                return value
            self.kept[key] = value
        return self.kept[key]  # type: ignore[no-any-return]

    def of_worker(self) -> Runtime:
        """Return the runtime of one worker. It may run in another folder and shows no progress."""
        shares = self.workers if self.workers and self.scheduler is None else 1
        share = replace(self, threads=max(1, self.threads // shares), memory=self.memory // shares)
        return replace(share, data=self.data.absolute(), workers=0, scheduler=None, progress=SILENT)


def pick_device(device: Device) -> Literal["cpu", "cuda"]:
    """Resolve `auto` to CUDA if available, otherwise the CPU. Raises MissingError if `cuda` is not available."""
    available = False
    if device != "cpu" and _has_gpu_driver():
        import torch

        available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise MissingError("torch sees no CUDA device", hint="Use `--device cpu`, or install a torch built for CUDA.")
    return "cuda" if available else "cpu"


def _has_gpu_driver() -> bool:
    """Return whether an NVIDIA or AMD driver is installed, without importing torch, which takes seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True
