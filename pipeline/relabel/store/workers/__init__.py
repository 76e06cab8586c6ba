"""Who makes the units of an artefact: this process, processes of its own, or any Dask cluster that shares its files."""

from __future__ import annotations

from relabel.store.tasks import Tasks, make_all
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import RemoteJob

__all__ = ["RemoteJob", "make"]


def make(tasks: Tasks, work: Work, job: RemoteJob) -> None:
    """Make every task that is not done, wherever ``job.project.runtime`` says.

    Parameters
    ----------
    tasks : Tasks
        As this process has them.
    work : Work
    job : RemoteJob
        How another process has the same.

    Raises
    ------
    MissingError
        If Dask is asked for and not installed, or no worker comes or sees the work folder.
    CheckError
        If a worker would make something else: another corpus, parameter, model or version.
    PartialError
        If all workers are lost, or one task ends several of them.
    RelabelError
        Whatever a task raises.
    """
    runtime = job.project.runtime
    if not runtime.workers and runtime.scheduler is None:
        make_all(tasks, work, runtime.progress)
        return
    from relabel.store.workers.dask_run import make_on_cluster

    make_on_cluster(tasks, work, job)
