"""Who makes the units of an artefact: this process, processes of its own, or any Dask cluster that shares its files."""

from __future__ import annotations

from relabel.store.tasks import Tasks, make_all
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import Order

__all__ = ["Order", "make"]


def make(tasks: Tasks, work: Work, order: Order) -> None:
    """Make every task that is not done, wherever ``order.project.runtime`` says.

    Parameters
    ----------
    tasks : Tasks
        As this process has them.
    work : Work
    order : Order
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
    runtime = order.project.runtime
    if not runtime.workers and runtime.scheduler is None:
        make_all(tasks, work, runtime.progress)
        return
    from relabel.store.workers.dask_run import make_elsewhere

    make_elsewhere(tasks, work, order)
