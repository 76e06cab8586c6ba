"""Where tests run side by side (`pytest -n 2`), each of xdist's processes has cores of its own.

Threads that numpy, torch and numba would start for cores of another process wait for each other instead of working.
"""

from __future__ import annotations

import os

_worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
if _worker and hasattr(os, "sched_setaffinity"):
    _cores, _count = sorted(os.sched_getaffinity(0)), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.sched_setaffinity(0, _cores[int(_worker) :: _count] or _cores)
