"""What runs in a worker: a job is made again once, its tasks one at a time; files go straight to the disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from relabel.core.progress import ignore_progress
from relabel.store.tasks import Task, Tasks
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import RemoteJob

_KEPT = 2  # jobs, each of which may hold a model
_kept: OrderedDict[tuple[str, str], Tasks] = OrderedDict()
_alone = threading.Lock()  # a task takes all threads and memory that a worker has


def run_task(remote: RemoteJob, task: Task) -> None:
    """Make one task's file.

    Raises
    ------
    CheckError, MissingError
        If this process is not fit for the job (see RemoteJob).
    RelabelError
        Whatever the task raises.
    """
    with _alone:
        remote.check_place()
        _tasks(remote).make(Work(remote.folder), task, ignore_progress)


def _tasks(remote: RemoteJob) -> Tasks:
    key = remote.artefact.fingerprint, remote.token
    if key not in _kept:
        project = remote.project
        if not project.runtime.threads:
            project = project.for_worker(replace(project.runtime, threads=_threads()))
        job = remote.stage(project, *remote.arguments)
        remote.check_job(job.artefact)
        if job.tasks is None:
            raise TypeError(f"{remote.stage.__name__} has no tasks")
        _kept[key] = job.tasks()
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def _threads() -> int:
    """How many threads whoever started this worker gave it."""
    from distributed import get_worker

    return max(1, int(get_worker().state.nthreads))
