"""The worker's side: a job is rebuilt once per process, and its tasks run one at a time and write their own files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from relabel.core.progress import ignore_progress
from relabel.store.tasks import Task, Tasks
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import RemoteJob

_MAX_CACHED = 2  # jobs kept in memory, each of which may hold a model
_cache: OrderedDict[tuple[str, str], Tasks] = OrderedDict()
_lock = threading.Lock()  # one task at a time: it uses all threads and memory of the worker


def run_task(remote: RemoteJob, task: Task) -> None:
    """Write the file of one task.

    Raises
    ------
    CheckError, MissingError
        If this process cannot do the job (see `RemoteJob.check_place` and `RemoteJob.check_job`).
    RelabelError
        Any error that the task raises.
    """
    with _lock:
        remote.check_place()
        _tasks(remote).make(Work(remote.folder), task, ignore_progress)


def _tasks(remote: RemoteJob) -> Tasks:
    """Return the tasks of a job, from the cache or rebuilt from its recipe."""
    key = remote.artefact.fingerprint, remote.token
    if key not in _cache:
        project = remote.project
        # A job sent to a scheduler names no number of threads: each worker uses those that it was started with.
        if not project.runtime.threads:
            project = project.for_worker(replace(project.runtime, threads=_threads()))
        job = remote.stage(project, *remote.arguments)
        remote.check_job(job.artefact)
        if job.tasks is None:
            raise TypeError(f"{remote.stage.__name__} has no tasks")
        _cache[key] = job.tasks()
        # The least recently used job goes first.
        while len(_cache) > _MAX_CACHED:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    return _cache[key]


def _threads() -> int:
    """Return the number of threads that this worker was started with."""
    from distributed import get_worker

    return max(1, int(get_worker().state.nthreads))
