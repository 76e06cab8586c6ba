"""Execution of the tasks of an artefact in this process, in local processes, or on a Dask cluster that shares files."""

from __future__ import annotations

from relabel.store.tasks import Tasks, make_all
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import RemoteJob

__all__ = ["RemoteJob", "make"]


def make(tasks: Tasks, work: Work, job: RemoteJob) -> None:
    """Run all tasks that are not done, where ``job.project.runtime`` requests it.

    Parameters
    ----------
    tasks : Tasks
        The tasks of this process.
    work : Work
    job : RemoteJob
        Recipe by which another process makes the same tasks.

    Raises
    ------
    MissingError
        If Dask is needed and not installed, or no worker appears or sees the work folder.
    CheckError
        If a worker would make other files: its corpus, parameters, models or version differ.
    PartialError
        If all workers are lost, or one task ends several of them.
    RelabelError
        Any error that a task raises.
    """
    runtime = job.project.runtime
    if not runtime.workers and runtime.scheduler is None:
        make_all(tasks, work, runtime.progress)
        return
    from relabel.store.workers.dask_run import make_on_cluster

    make_on_cluster(tasks, work, job)
