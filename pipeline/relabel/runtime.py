"""What a run may use and where it finds things: never part of a fingerprint."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel.progress import SILENT, Progress

Device = Literal["auto", "cpu", "cuda"]


def default_data() -> Path:
    """Folder of fetched files: $RELABEL_DATA, else ./data."""
    return Path(os.environ.get("RELABEL_DATA", "data"))


@dataclass(frozen=True)
class Runtime:
    """Where and how to work.

    Attributes
    ----------
    data : Path
        Folder of fetched and tuned assets, one folder a manifest (`data/glove/...`).
    device : "auto", "cpu" or "cuda"
    threads : int
        CPU threads.
    memory : int
        Bytes that one process may hold beside what it must read whole.
    workers : int
        Processes of a local Dask cluster; 0 does all work in this process.
    scheduler : str or None
        Address of a Dask scheduler (`tcp://...`) whose workers share this file system.
    progress : Progress
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
    progress: Progress = SILENT
