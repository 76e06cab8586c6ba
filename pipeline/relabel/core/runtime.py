"""Resources and folders of a run, and its progress. None of these is ever part of a fingerprint."""

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
"""Callback that takes the amount of work done since the last call."""


def ignore_progress(n: int) -> None:
    """Ignore the amount of work done: the `Advance` of a caller that shows no progress."""


class ProgressBar:
    """Progress of one activity with a known total; this one shows nothing."""

    def advance(self, n: int = 1) -> None:
        """Add n to the amount of work done."""

    def reach(self, total: int) -> None:
        """Raise the amount of work done to at least `total`."""


class Progress:
    """Display of progress: a line on a terminal, lines elsewhere. This one, of every library call, shows nothing."""

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Open a progress bar of `total` units."""
        yield ProgressBar()

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Show what runs, without an amount: an import, the loading of a model, the start of a program."""
        yield

    def advance(self, n: int) -> None:
        """Add n to the work of the innermost open bar, if any is open."""

    @contextmanager
    def artefacts(self, seconds: Mapping[Path, float]) -> Iterator[None]:
        """Show the progress of several artefacts. `seconds`: expected time of each in order, 0 if unknown or done."""
        yield

    def made(self, out: Path, text: str) -> None:
        """Show one line about an artefact that is made, and count it."""

    def note(self, text: str) -> None:
        """Show one line about work that was done or skipped."""


SILENT = Progress()


Device = Literal["auto", "cpu", "cuda"]


def default_data() -> Path:
    """Return the folder of fetched files: $RELABEL_DATA, or ./data if it is not set."""
    return Path(os.environ.get("RELABEL_DATA", "data"))


def default_threads() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_size(text: str) -> int:
    """Parse a number of bytes: `4GiB`, `512MiB`, `2.5GB`, `4G` (as GiB), `1000000`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)(I?B)?", text.strip().upper(), re.ASCII)
    if match is None:
        raise ValueError(f"not an amount of memory, such as 4GiB or 512MiB: {text[:40]!r}")
    # Only a full decimal unit (`MB`) counts in thousands: `M` and `MiB` are powers of 1024.
    return int(float(match[1]) * (1000 if match[3] == "B" else 1024) ** " KMGT".index(match[2] or " "))


ROWS_PER_SHARD = 50_000
"""Captions or queries in one file of an artefact: seconds to minutes of work, which an interruption repeats."""


@dataclass(frozen=True)
class Runtime:
    """Resources and folders of a run.

    `data`: folder of fetched and tuned assets, with one folder per dataset or model (`data/glove/...`).
    `threads`: CPU threads. Local workers share them.
    `memory`: bytes that a stage may use in addition to the files that it must read completely. Local workers share
        them; each worker of a scheduler may use this many.
    `workers`: local processes. 0 does all work in this process.
    `scheduler`: address of a Dask scheduler (`tcp://...`) whose workers share this file system.
    `shard`: (i, n); this process makes every n-th task from the i-th on, counted from 1. None makes all.
    `rebuild`: whether artefacts are built again that are up to date.
    `retry_failed`: whether artefacts with failed rows are built again.
    `kept`: models and programs that stay for further calls, by what decides them. None keeps none.
    `rows_per_shard`: `ROWS_PER_SHARD`, of which tests have fewer. Workers get it with the runtime.
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
        """Return what `make` returns, or returned for this key before. `name`: of what is loaded, for the progress."""
        if self.kept is None or key not in self.kept:
            with self.progress.status(f"loading {name}") if name else nullcontext():
                made = make()
            if self.kept is None:
                return made
            self.kept[key] = made
        return self.kept[key]  # type: ignore[no-any-return]

    def of_worker(self) -> Runtime:
        """Return the runtime of one worker, which may run in another folder and has no display."""
        shares = self.workers if self.workers and self.scheduler is None else 1
        own = replace(self, threads=max(1, self.threads // shares), memory=self.memory // shares)
        return replace(own, data=self.data.absolute(), workers=0, scheduler=None, progress=SILENT)


def pick_device(device: Device) -> Literal["cpu", "cuda"]:
    """Return the device to compute on: CUDA if it is available, unless `device` names another one."""
    available = False
    if device != "cpu" and _has_gpu_driver():
        import torch

        available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise MissingError("torch sees no CUDA device", todo="Use `--device cpu`, or install a torch built for CUDA.")
    return "cuda" if available else "cpu"


def _has_gpu_driver() -> bool:
    """Return whether a driver of NVIDIA or AMD is installed. To ask torch first would import it for seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True
