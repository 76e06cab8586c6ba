"""Cores per test process, and the budgets and counts of drills.

Parallel test processes (`pytest -n 2`) use disjoint sets of cores. Otherwise threads of numpy, torch and numba in one
process would compete with those of another.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from pathlib import Path

import pytest

_worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
if _worker and hasattr(os, "sched_setaffinity"):
    _cores, _count = sorted(os.sched_getaffinity(0)), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.sched_setaffinity(0, _cores[int(_worker) :: _count] or _cores)

DRILLS = {
    "kills": (40, "runs that are killed"),
    "flips": (100, "files that are changed"),
    "inputs": (600, "inputs that are fuzzed"),
    "disks": (20, "runs that find the disk full"),
    "seed": (0, "seed of all random choices"),
}
"""Option `--drill-NAME` to its default and its meaning."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the budgets of drills."""
    group = parser.getgroup("drills", "drills (tests/drills)")
    for name, (default, meaning) in DRILLS.items():
        group.addoption(f"--drill-{name}", type=int, default=default, metavar="N", help=f"{meaning} [{default}]")
    only = "kill, and fill disks in, stages whose name begins so alone; repeatable [all]"
    group.addoption("--drill-stage", action="append", metavar="NAME", help=only)
    group.addoption("--drill-report", type=Path, metavar="FILE", help="write the counts of all drills as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the counts of drills."""
    config.pluginmanager.register(DrillCounts(config))


class DrillCounts:
    """Sums of the counts that tests report (fixture `tally`), over all test processes."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.time()
        self.counts: dict[str, Counter[str]] = {}
        self.outcomes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the counts of a test."""
        if "drills" in Path(report.fspath).parts and (report.when == "call" or report.outcome != "passed"):
            self.outcomes[report.outcome] += 1
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == "drill":
                    kind, subject, count = value
                    self.counts.setdefault(kind, Counter())[subject] += count

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show one line per kind of drill; write the report."""
        for kind, subjects in self.counts.items():
            terminalreporter.write_line(f"drill {kind}: {subjects.total():,} over {len(subjects)} subjects")
        if path := self.config.getoption("drill_report"):
            body = {
                "command": ["pytest", *self.config.invocation_params.args],
                "seed": self.config.getoption("drill_seed"),
                "started": time.strftime("%Y-%m-%d", time.localtime(self.started)),
                "seconds": round(time.time() - self.started),
                "machine": {
                    "platform": platform.platform(),
                    "python": platform.python_version(),
                    "processor": _processor(),
                    "cores": os.cpu_count(),
                },
                "tests": self.outcomes,
                "counts": self.counts,
            }
            path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _processor() -> str:
    """Return the model of the processor."""
    facts = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in facts.read_text().splitlines()] if facts.exists() else []
    return next((name for name in names if "CPU" in name or "Processor" in name), platform.processor() or "unknown")
