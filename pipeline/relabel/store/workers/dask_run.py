"""Tasks run by a Dask cluster, one at a time per worker. Tasks of a lost worker are run by another one."""

from __future__ import annotations

import secrets
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from relabel.core.errors import CheckError, MissingError, PartialError
from relabel.core.progress import ProgressBar
from relabel.store.atomic import write_text
from relabel.store.tasks import Task, Tasks
from relabel.store.workdir import Work
from relabel.store.workers.dask_cluster import AGAIN, connected, worker_budget
from relabel.store.workers.remote_job import RemoteJob
from relabel.store.workers.worker import run_task

PATIENCE = 60.0
"""Seconds to wait for the first worker, for another one after the last is lost, and for a file to become visible."""
_INTERVAL = 0.5  # seconds between two checks of the list of workers
_PACKAGE = "relabel-itr"
_MAX_LOSSES = 3  # workers that may be lost during one task


def make_on_cluster(tasks: Tasks, work: Work, job: RemoteJob) -> None:
    """Run all tasks that are not done in a Dask cluster; raises like `relabel.store.workers.make`."""
    runtime = job.project.runtime
    tasks.start(work)
    with ExitStack() as stack:
        pool = DaskPool(job, work, stack)
        for group in tasks.groups(work):
            waiting = [task for task in group.tasks if not work.done(task.file)]
            total = sum(task.size for task in group.tasks)
            title = f"{group.title}, {pool.name}" if waiting else group.title
            with runtime.progress.bar(title, total, group.measure) as bar:
                bar.advance(total - sum(task.size for task in waiting))
                if waiting:
                    pool.make(waiting, bar)
    tasks.finish(work)


class DaskPool:
    """The workers of one job. The cluster is opened with the first task.

    Parameters
    ----------
    job : RemoteJob
    work : Work
    stack : ExitStack
        Closes the cluster and removes the token.
    """

    def __init__(self, job: RemoteJob, work: Work, stack: ExitStack) -> None:
        self._job, self._work, self._stack = job, work, stack
        self._runtime, self._met = job.project.runtime, False
        self._checked = set[str]()

    @property
    def name(self) -> str:
        """Name of the workers in progress bars and messages."""
        if self._runtime.scheduler is not None:
            return f"workers of {self._runtime.scheduler}"
        return f"{self._runtime.workers} workers"

    def make(self, tasks: Sequence[Task], bar: ProgressBar) -> None:
        """Run tasks that do not depend on each other, each on the first idle worker.

        Raises
        ------
        MissingError, CheckError, PartialError, RelabelError
            Like `relabel.store.workers.make`.
        """
        # Running tasks by their future, with the address of the worker.
        waiting, running, losses = deque(tasks), dict[Any, tuple[Task, str]](), Counter[Task]()

        def put_back(task: Task) -> None:
            losses[task] += 1
            self._check_losses(task, losses[task])
            waiting.append(task)

        try:
            while waiting or running:
                addresses = self._workers()
                # A task bound to a lost worker would wait forever.
                for future in [f for f, (_, address) in running.items() if address not in addresses and not f.done()]:
                    task, _ = running.pop(future)
                    future.cancel(force=True)
                    put_back(task)
                busy = {address for _, address in running.values()}
                for address in [a for a in addresses if a not in busy][: len(waiting)]:
                    task = waiting.popleft()
                    running[self._send(task, address)] = task, address
                for future in self._wait(list(running)):
                    task, _ = running.pop(future)
                    if self._ended(future, task):
                        bar.advance(task.size)
                    else:
                        put_back(task)
        finally:
            # After an error or an interrupt no worker goes on with a task.
            for future in running:
                future.cancel(force=True)

    def _wait(self, futures: list[Any]) -> list[Any]:
        """Wait a short time for any future to end, and return those that did."""
        from distributed import wait

        try:
            with self._client.as_current():
                return list(wait(futures, timeout=_INTERVAL, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            return []
        except CancelledError:
            # Futures end like this when their scheduler is lost.
            return [future for future in futures if future.done()]

    @cached_property
    def _client(self) -> Any:
        return self._stack.enter_context(connected(self._runtime))

    @cached_property
    def _sent(self) -> RemoteJob:
        """The job as it is sent to workers. Its token lies in the work folder until the job ends."""
        token = f".job-{secrets.token_hex(8)}"
        write_text(self._work.folder / token, token)
        self._stack.callback((self._work.folder / token).unlink, missing_ok=True)
        return self._job.for_worker(token, *worker_budget(self._runtime))

    def _send(self, task: Task, address: str) -> Any:
        self._check(address)
        # Bound to its worker, so that each worker has one task. Without this, Dask would let a task wait forever if the
        # last worker is lost and a new one joins.
        key = f"{self._job.artefact.kind}-{task.file}-{secrets.token_hex(4)}"
        return self._client.submit(run_task, self._sent, task, key=key, workers=[address], pure=False)

    def _check(self, address: str) -> None:
        """Raise if a worker lacks this version of relabel: unpickling a job would end it without a message."""
        if address in self._checked or self._runtime.scheduler is None:
            return
        answer = self._client.run(version, _PACKAGE, workers=[address], on_error="return").get(address)
        if isinstance(answer, PackageNotFoundError) or (isinstance(answer, str) and answer != version(_PACKAGE)):
            other = f"relabel {answer}" if isinstance(answer, str) else "no relabel"
            message = f"expected relabel {version(_PACKAGE)}, found {other}"
            raise CheckError(message, where=f"worker {address}", todo="Install the same version everywhere.")
        self._checked.add(address)

    def _workers(self) -> list[str]:
        """Wait for at least one worker, and return the addresses of all workers."""
        begun, noted = time.monotonic(), False
        while True:
            try:
                addresses = sorted(self._client.nthreads())
            except OSError as error:
                raise PartialError(f"the scheduler is lost ({error})", where=self.name, todo=AGAIN) from error
            if addresses:
                self._met = True
                return addresses
            if not noted:
                noted = True
                self._runtime.progress.note(f"No worker is there; waiting up to {PATIENCE:.0f} s for one.")
            if time.monotonic() - begun > PATIENCE:
                # Workers that existed are lost work; workers that never came are a matter of setup.
                if self._met or self._runtime.scheduler is None:
                    raise PartialError("all workers are lost", where=self.name, todo=AGAIN)
                todo = "Start some: `dask worker ADDRESS`."
                raise MissingError(f"no worker came within {PATIENCE:.0f} s", where=self.name, todo=todo)
            time.sleep(_INTERVAL)

    def _ended(self, future: Any, task: Task) -> bool:
        """Return whether a task was completed; False if its worker was lost. Raises the error of the task."""
        from distributed import KilledWorker

        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                return False
            raise error
        if future.status != "finished":
            return False
        begun = time.monotonic()
        # A network file system may show the file late.
        while not self._work.done(task.file):
            if time.monotonic() - begun > PATIENCE:
                raise PartialError("written by a worker, but not visible to this process", where=task.file, todo=AGAIN)
            time.sleep(_INTERVAL)
        return True

    def _check_losses(self, task: Task, times: int) -> None:
        """Raise if a task has ended too many workers to be given to another one."""
        if times > _MAX_LOSSES:
            message = f"{task.file} ended the {times} workers that tried it; too little memory is the common reason"
            raise PartialError(message, where=self.name, todo=AGAIN)
