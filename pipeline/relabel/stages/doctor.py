"""doctor: checks the machine and optional software, and explains the consequence and fix of each gap."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions, requires
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.core.runtime import Runtime, pick_device
from relabel.core.tables import align


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    `state`: short description of the state.
    `cost`, `fix`: consequence of a gap, and the command or step to fix it. Empty if the check passed.
    """

    name: str
    state: str
    cost: str = ""
    fix: str = ""


def run_checks(runtime: Runtime) -> list[CheckResult]:
    """Run all checks, without changing or downloading anything."""
    # Name, function that returns the state or raises, and consequence of a gap.
    checks: list[tuple[str, Callable[[], str], str]] = [
        ("python", lambda: f"{platform.python_version()}, {os.cpu_count()} CPUs", ""),
        ("pipeline", partial(_extra, "pipeline"), "labels cannot be built, or only some of them"),
        ("offline", partial(_extra, "offline"), "sbert downloads its model from the hub"),
        ("faiss", _faiss, "no indexes of faiss, or encoders on torch, at half the speed; exact search works"),
        ("tune", partial(_extra, "tune"), "`relabel tune word2vec` cannot run"),
        ("spice", partial(_extra, "spice"), "spice cannot parse captions"),
        ("gpu", _gpu, ""),
        ("dtype", _dtype, ""),
        ("java", _java, "no PTB tokens, and `meteor` encodes no captions; `lower_split` works"),
        ("corenlp", partial(_corenlp, runtime.data), "spice cannot parse captions; existing encodings can be used"),
    ]
    results = []
    for name, probe, cost in checks:
        try:
            results.append(CheckResult(name, probe()))
        except RelabelError as error:
            state = f"{error.problem} ({error.where})" if error.where else error.problem
            results.append(CheckResult(name, state, cost, error.hint or ""))
        except ModuleNotFoundError as error:
            # The pipeline is not installed; another check reports this.
            results.append(CheckResult(name, f"unknown: {error}"))
    return results


def report(checks: list[CheckResult]) -> str:
    """Format the results, followed by the consequence and fix of each gap."""
    lines = align([("--" if check.cost else "ok", check.name, check.state) for check in checks])
    return "\n".join([*lines, *(f"\n{check.name}: {check.cost}\n  {check.fix}" for check in checks if check.cost)])


def missing_distributions(extra: str) -> list[str]:
    """Return the distributions of an extra of the package that are not installed."""
    # Requirements of an extra have the form `NAME>=VERSION; extra == "EXTRA"`, with any kind of quotes.
    wanted = [text for text in requires("relabel-itr") or () if re.search(rf"extra == .{extra}\b", text)]
    # The only other marker, in the extra `cpu`, excludes arm64 Linux.
    wanted = [text for text in wanted if "platform_machine" not in text or platform.machine() != "aarch64"]
    names = [re.split(r"[^\w.-]", text)[0].lower() for text in wanted]
    return [name for name in names if not is_installed(name)]


def is_installed(distribution: str) -> bool:
    """Return True if any version of a distribution is installed."""
    return bool(list(distributions(name=distribution)))


def _extra(extra: str) -> str:
    """Check the distributions of an extra of the package."""
    if missing := missing_distributions(extra):
        raise MissingError(f"not installed: {', '.join(missing)}", hint=f"pip install 'relabel-itr[{extra}]'")
    return "installed"


def _faiss() -> str:
    installed = [name for name in ("faiss-cpu", "faiss-gpu") if is_installed(name)]
    if len(installed) == 2:
        hint = "pip uninstall faiss-cpu faiss-gpu, then install one of them"
        raise CheckError("two distributions overwrite each other", where=", ".join(installed), hint=hint)
    return _extra("gpu" if installed == ["faiss-gpu"] else "cpu")


def _gpu() -> str:
    if pick_device("auto") == "cpu":
        return "none: the CPU is used"
    import torch

    return str(torch.cuda.get_device_name(0))


def _dtype() -> str:
    from relabel.sources.models.forward import fast_types

    return f"faster than float32 on this CPU: {', '.join(fast_types()) or 'none'}"


def _java() -> str:
    from relabel.core.java import find_java, java_version

    java = find_java()
    return f"{java_version(java)} ({java})"


def _corenlp(data: Path) -> str:
    from relabel.sources.spice.parser import corenlp_jars

    return f"CoreNLP 3.6.0 in {corenlp_jars(data)[0].parent}"
