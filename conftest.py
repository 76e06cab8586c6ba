"""Cores per test process, and the budgets of drills.

Parallel test processes (`pytest -n 2`) use disjoint sets of cores. Otherwise threads of numpy, torch and numba in one
process would compete with those of another.
"""

from __future__ import annotations

import os

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
