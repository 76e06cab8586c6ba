"""Resources of a run and places of files, which are never part of a fingerprint."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel.core.errors import MissingError, UsageError
from relabel.core.progress import SILENT, Progress

Device = Literal["auto", "cpu", "cuda"]
LEAST_MEMORY = 256 << 20
"""Bytes below which a budget can only be a mistake."""


def default_data() -> Path:
    """Folder of fetched files: $RELABEL_DATA, else ./data."""
    return Path(os.environ.get("RELABEL_DATA", "data"))


def parse_size(text: str) -> int:
    """Read a number of bytes: `4GiB`, `512MiB`, `2.5GB`, `4G` (as GiB), `1000000`.

    Raises
    ------
    ValueError
        If it is no such number, or has more than 15 digits on a side of the point.
    """
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]?)(i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"not an amount of memory: {text[:40]!r}")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1000 if (match[3] or "").lower() == "b" and power else 1024) ** power)


def parse_memory(text: str) -> int:
    """Read a budget of memory; see `parse_size`.

    Raises
    ------
    UsageError
        If it is no number of bytes, or less than `LEAST_MEMORY`.
    """
    try:
        count = parse_size(text)
    except ValueError as error:
        raise UsageError(str(error), where="--memory", todo="Write it as 4GiB or 512MiB.") from error
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
    replace : bool
        Whether artefacts of another source or of other parameters may be replaced (see `relabel.corpus.ingest`).
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
    replace: bool = False
    progress: Progress = SILENT


def pick_device(device: Device) -> Literal["cpu", "cuda"]:
    """Choose where to compute.

    Raises
    ------
    MissingError
        If CUDA is asked for and not there.
    """
    import torch

    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise MissingError("torch sees no CUDA device", todo="Use `--device cpu`, or install a torch built for CUDA.")
    return "cuda" if there and device != "cpu" else "cpu"
