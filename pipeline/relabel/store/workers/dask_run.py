"""Tasks made by a Dask cluster: a task a worker at a time; what a lost worker had is made by another."""

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
"""Seconds to wait for a first worker, for another after the last one is lost, and for a file to be seen."""
_LOOK = 0.5  # seconds between looks at which workers are there
_PACKAGE = "relabel-itr"
_LOSSES = 3  # workers that may be lost over one task


def make_on_cluster(tasks: Tasks, work: Work, job: RemoteJob) -> None:
    """Make every task that is not done in a Dask cluster; see `relabel.store.workers.make`."""
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
    """The workers of one job, called together with its first task.

    Parameters
    ----------
    job : RemoteJob
    work : Work
    stack : ExitStack
        Ends what is begun here.
    """

    def __init__(self, job: RemoteJob, work: Work, stack: ExitStack) -> None:
        self._job, self._work, self._stack = job, work, stack
        self._runtime, self._met = job.project.runtime, False
        self._checked = set[str]()

    @property
    def name(self) -> str:
        """What a bar calls them."""
        if self._runtime.scheduler is not None:
            return f"workers of {self._runtime.scheduler}"
        return f"{self._runtime.workers} workers"

    def make(self, tasks: Sequence[Task], bar: ProgressBar) -> None:
        """Make tasks that need nothing of each other, each on the first worker that has nothing to do.

        Raises
        ------
        MissingError, CheckError, PartialError, RelabelError
            See `relabel.store.workers.make`.
        """
        waiting, flying, losses = deque(tasks), dict[Any, tuple[Task, str]](), Counter[Task]()
        try:
            while waiting or flying:
                there = self._workers()
                for future in [f for f, (_, address) in flying.items() if address not in there and not f.done()]:
                    task, _ = flying.pop(future)
                    future.cancel(force=True)
                    losses[task] += 1
                    self._lost(task, losses[task])
                    waiting.append(task)
                busy = {address for _, address in flying.values()}
                for address in [a for a in there if a not in busy][: len(waiting)]:
                    task = waiting.popleft()
                    flying[self._send(task, address)] = task, address
                for future in self._wait(list(flying)):
                    task, _ = flying.pop(future)
                    if self._ended(future, task):
                        bar.advance(task.size)
                    else:
                        losses[task] += 1
                        self._lost(task, losses[task])
                        waiting.append(task)
        finally:
            for future in flying:
                future.cancel(force=True)

    def _wait(self, futures: list[Any]) -> list[Any]:
        """Wait a little for any of them to end."""
        from distributed import wait

        try:
            with self._client.as_current():
                return list(wait(futures, timeout=_LOOK, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            return []
        except CancelledError:  # which is how futures end that a scheduler took with it
            return [future for future in futures if future.done()]

    @cached_property
    def _client(self) -> Any:
        return self._stack.enter_context(connected(self._runtime))

    @cached_property
    def _sent(self) -> RemoteJob:
        """Put the token into the work folder, to be gone when the job is."""
        token = f".order-{secrets.token_hex(8)}"
        write_text(self._work.folder / token, token)
        self._stack.callback((self._work.folder / token).unlink, missing_ok=True)
        return self._job.for_worker(token, *worker_budget(self._runtime))

    def _send(self, task: Task, address: str) -> Any:
        self._check(address)
        # Bound to its worker, so that each has one task. Dask itself would leave a task that may go elsewhere waiting
        # for ever where the last worker is lost and a new one comes.
        key = f"{self._job.artefact.kind}-{task.file}-{secrets.token_hex(4)}"
        return self._client.submit(run_task, self._sent, task, key=key, workers=[address], pure=False)

    def _check(self, address: str) -> None:
        """Refuse a worker without this relabel: it would end without a word when it reads an order."""
        if address in self._checked or self._runtime.scheduler is None:
            return
        answer = self._client.run(version, _PACKAGE, workers=[address], on_error="return").get(address)
        if isinstance(answer, PackageNotFoundError) or (isinstance(answer, str) and answer != version(_PACKAGE)):
            other = f"relabel {answer}" if isinstance(answer, str) else "no relabel"
            what = f"expected relabel {version(_PACKAGE)}, found {other}"
            raise CheckError(what, where=f"worker {address}", todo="Install the same version everywhere.")
        self._checked.add(address)

    def _workers(self) -> list[str]:
        """Wait for at least one worker, and return the addresses of all."""
        begun, told = time.monotonic(), False
        while True:
            try:
                there = sorted(self._client.nthreads())
            except OSError as error:
                raise PartialError(f"the scheduler is lost ({error})", where=self.name, todo=AGAIN) from error
            if there:
                self._met = True
                return there
            if not told:
                told = True
                self._runtime.progress.note(f"No worker is there; waiting up to {PATIENCE:.0f} s for one.")
            if time.monotonic() - begun > PATIENCE:
                if self._met or self._runtime.scheduler is None:
                    raise PartialError("all workers are lost", where=self.name, todo=AGAIN)
                todo = "Start some: `dask worker ADDRESS`."
                raise MissingError(f"no worker came within {PATIENCE:.0f} s", where=self.name, todo=todo)
            time.sleep(_LOOK)

    def _ended(self, future: Any, task: Task) -> bool:
        """Say whether a task was made; False if its worker was lost. Raises what the task raised."""
        from distributed import KilledWorker

        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                return False
            raise error
        if future.status != "finished":
            return False
        begun = time.monotonic()
        while not self._work.done(task.file):  # a network file system may show it late
            if time.monotonic() - begun > PATIENCE:
                raise PartialError("a worker made it, and it is not seen here", where=task.file, todo=AGAIN)
            time.sleep(_LOOK)
        return True

    def _lost(self, task: Task, times: int) -> None:
        """Refuse to give one task to yet another worker when it has ended too many."""
        if times > _LOSSES:
            what = f"{task.file} ended the {times} workers that tried it; too little memory is the common reason"
            raise PartialError(what, where=self.name, todo=AGAIN)
