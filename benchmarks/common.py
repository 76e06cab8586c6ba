"""Shared helpers of the benchmarks: facts about the machine, timers, tables, JSON files, and COCO's test captions."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"


def machine(*libraries: str) -> dict[str, Any]:
    """Return the facts that timings depend on: CPU, usable cores, OPENBLAS_CORETYPE, versions of the software."""
    info = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "not set"),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in libraries},
    }


def describe(facts: dict[str, Any]) -> str:
    """Format the facts of `machine` as one line."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())
    openblas = f"OPENBLAS_CORETYPE {facts['OPENBLAS_CORETYPE']}"
    return f"{facts['cpu']}, {facts['cores']} cores, {openblas}, Python {facts['python']}, {versions}"


def timed(work: Callable[[], T], repeats: int) -> tuple[float, T]:
    """Run `work` several times; return the median of the seconds and the last result."""
    (seconds, result), *_ = rounds({"": work}, repeats).values()
    return statistics.median(seconds), result


def rounds(works: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, tuple[list[float], T]]:
    """Run every work once per round, so that load from other processes hits each; return seconds and last results."""
    timings: dict[str, tuple[list[float], T]] = {}
    for _ in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            result = work()
            seconds = time.perf_counter() - started
            timings[name] = ([*timings[name][0], seconds] if name in timings else [seconds], result)
    return timings


def peak_gib() -> float:
    """Return the largest resident memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def cpu_seconds(*, own: bool = False, children: bool = False) -> float:
    """Return the CPU seconds of this process, of its children that have ended, or of both."""
    counted = [resource.RUSAGE_SELF] * own + [resource.RUSAGE_CHILDREN] * children
    return sum(sum(resource.getrusage(who)[:2]) for who in counted)


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with its first column left-aligned and the others right-aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print(f"\n{title}")
    for row in [head, ["-" * w for w in widths], *rows]:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def save(name: str, body: dict[str, Any]) -> Path:
    """Write `results/NAME.json`."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def coco_test_captions() -> list[tuple[int, int, str]]:
    """Return COCO's 25,000 test captions as (caption id, image id, text), from inside two packages, without a download.

    Ids: eccv_caption. Texts: the annotations in the SPICE jar of pycocoevalcap.
    """
    ids = set(np.load(_inside("eccv_caption", "data/coco_test_ids.npy")).tolist())
    with zipfile.ZipFile(_inside("pycocoevalcap", "spice/spice-1.0.jar")) as jar:
        body = json.loads(jar.read("coco/annotations/captions_val2014.json"))
    return [(a["id"], a["image_id"], a["caption"]) for a in body["annotations"] if a["id"] in ids]


def _inside(package: str, path: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / path
