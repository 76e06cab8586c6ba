"""What a run may use and where it finds things: never part of a fingerprint."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel.errors import UsageError
from relabel.progress import SILENT, Progress

Device = Literal["auto", "cpu", "cuda"]
LEAST_MEMORY = 256 << 20
"""Bytes below which a budget can only be a mistake."""


def default_data() -> Path:
    """Folder of fetched files: $RELABEL_DATA, else ./data."""
    return Path(os.environ.get("RELABEL_DATA", "data"))


def parse_memory(text: str) -> int:
    """Read a number of bytes: `4GiB`, `512MiB`, `2.5GB`, `4G` (as GiB), `1000000`.

    Raises
    ------
    UsageError
        If it is no such number, or less than `LEAST_MEMORY`.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UsageError(f"not an amount of memory: {text!r}", where="--memory", todo="Write it as 4GiB or 512MiB.")
    power = " kmgt".index(found[2].lower() or " ")
    count = int(float(found[1]) * (1000 if (found[3] or "").lower() == "b" and power else 1024) ** power)
    if count < LEAST_MEMORY:
        what = f"{text} is too little to work in"
        raise UsageError(what, where="--memory", todo=f"Give at least {LEAST_MEMORY >> 20}MiB.")
    return count


@dataclass(frozen=True)
class Runtime:
    """Where and how to work.

    Attributes
    ----------
    data : Path
        Folder of fetched and tuned assets, one folder a manifest (`data/glove/...`).
    device : "auto", "cpu" or "cuda"
    threads : int
        CPU threads; local workers share them.
    memory : int
        Bytes to hold beside what must be read whole; local workers share them, those of a scheduler have as much each.
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
