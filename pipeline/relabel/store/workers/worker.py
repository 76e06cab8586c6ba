"""What runs in a worker: a job is made again once, its tasks one at a time; files go straight to the disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from relabel.store.tasks import Task, Tasks
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import Order

_KEPT = 2  # jobs, each of which may hold a model
_kept: OrderedDict[tuple[str, str], Tasks] = OrderedDict()
_alone = threading.Lock()  # a task takes all threads and memory that a worker has


def run_task(order: Order, task: Task) -> None:
    """Make one task's file.

    Raises
    ------
    CheckError, MissingError
        If this process is not fit for the order (see Order).
    RelabelError
        Whatever the task raises.
    """
    with _alone:
        order.check_place()
        _units(order).make(Work(order.folder), task, lambda _: None)


def _units(order: Order) -> Tasks:
    key = order.artefact.fingerprint, order.token
    if key not in _kept:
        project = order.project
        if not project.runtime.threads:
            project = project.for_worker(replace(project.runtime, threads=_threads()))
        job = order.stage(project, *order.arguments)
        order.check_job(job.artefact)
        if job.tasks is None:
            raise TypeError(f"{order.stage.__name__} has no tasks")
        _kept[key] = job.tasks()
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def _threads() -> int:
    """How many threads whoever started this worker gave it."""
    from distributed import get_worker

    return max(1, int(get_worker().state.nthreads))
