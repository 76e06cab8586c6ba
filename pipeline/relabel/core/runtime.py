"""Resources and folders of a run, its progress, the memory of this process, and the end of child processes.

None of these is ever part of a fingerprint. A terminal sends SIGINT to all processes, and the parent alone answers it.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from relabel.core.errors import MissingError, UsageError

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
    """Display of progress: bars on a terminal, lines elsewhere. This one, of every library call, shows nothing."""

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[ProgressBar]:
        """Open a progress bar of `total` units."""
        yield ProgressBar()

    def advance(self, n: int) -> None:
        """Add n to the work of the innermost open bar, if any is open."""

    def note(self, text: str) -> None:
        """Show one line about work that was done or skipped."""


SILENT = Progress()


Device = Literal["auto", "cpu", "cuda"]
MIN_MEMORY = 256 << 20
"""Bytes. A smaller budget can only be a mistake."""


def default_data() -> Path:
    """Return the folder of fetched files: $RELABEL_DATA, or ./data if it is not set."""
    return Path(os.environ.get("RELABEL_DATA", "data"))


def parse_size(text: str) -> int:
    """Parse a number of bytes: `4GiB`, `512MiB`, `2.5GB`, `4G` (as GiB), `1000000`."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]?)(i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"not an amount of memory: {text[:40]!r}")
    # Only a full decimal unit (`MB`) counts in thousands: `M` and `MiB` are powers of 1024.
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1000 if (match[3] or "").lower() == "b" and power else 1024) ** power)


def parse_memory(text: str) -> int:
    """Parse a memory budget in the format of `parse_size`."""
    try:
        count = parse_size(text)
    except ValueError as error:
        raise UsageError(str(error), where="--memory", todo="Write it as 4GiB or 512MiB.") from error
    if count < MIN_MEMORY:
        message = f"{text} is too little to work in"
        raise UsageError(message, where="--memory", todo=f"Give at least {MIN_MEMORY >> 20}MiB.")
    return count


def parse_shard(text: str) -> tuple[int, int]:
    """Parse `i/n`, the i-th of n shares of the tasks of a stage, counted from 1."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        todo = "Write it as I/N with I from 1 to N: 2/8 is the second of eight shares."
        raise UsageError(f"no share of the work: {text[:40]!r}", where="--shard", todo=todo)
    return int(match[1]), int(match[2])


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
    `replace`: whether artefacts of another source or of other parameters may be replaced (see `relabel.corpus.ingest`).
    """

    data: Path = field(default_factory=default_data)
    device: Device = "auto"
    threads: int = field(
        default_factory=lambda: (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
    )
    memory: int = 4 << 30
    workers: int = 0
    scheduler: str | None = None
    shard: tuple[int, int] | None = None
    replace: bool = False
    progress: Progress = SILENT

    def of_worker(self) -> Runtime:
        """Return the runtime of one worker, which may run in another folder and has no display."""
        shares = self.workers if self.workers and self.scheduler is None else 1
        own = replace(self, threads=max(1, self.threads // shares), memory=self.memory // shares)
        return replace(own, data=self.data.absolute(), workers=0, scheduler=None, progress=SILENT)


def pick_device(device: Device) -> Literal["cpu", "cuda"]:
    """Return the device to compute on: CUDA if it is available, unless `device` names another one."""
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise MissingError("torch sees no CUDA device", todo="Use `--device cpu`, or install a torch built for CUDA.")
    return "cuda" if available and device != "cpu" else "cpu"


MIN_RELEASE = 1 << 30
"""Resident bytes below which `release_memory` does nothing, because it takes tenths of a second."""


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, after `release_memory`."""
    release_memory()
    return _resident()


def release_memory() -> None:
    """Return memory that the allocators of a large process keep for later use to the system.

    Without it, a stage after a large one has less memory: after encoding with a sentence encoder, Arrow and the C
    library keep 0.6 GiB that the next stage cannot use.
    """
    if _resident() < MIN_RELEASE:
        return
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        # Only glibc has this function.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _resident() -> int:
    import psutil

    size: int = psutil.Process().memory_info().rss
    return size


@contextmanager
def blocked_interrupts() -> Iterator[None]:
    """Block SIGINT in this thread until the end, and in threads and processes started within for all their life."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    # The first child process would start the tracker otherwise, which unblocks SIGINT.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_on_interrupt() -> None:
    """Let SIGINT end this process without a traceback; for a process that starts with SIGINT blocked."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent() -> None:
    """End this child process of `multiprocessing` as soon as its parent has ended, even if that was killed.

    A worker of a pool would wait for work for ever otherwise, and keep its memory.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)  # from a thread, sys.exit ends only the thread

    threading.Thread(target=wait, name="end_with_parent", daemon=True).start()
