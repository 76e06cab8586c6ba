"""Tasks run by a Dask cluster, one at a time per worker. Tasks of a lost worker are run by another one.

The cluster consists of local processes for the duration of one job, or is that of an external scheduler.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from tempfile import TemporaryDirectory
from typing import Any

from relabel.core.errors import CheckError, MissingError, PartialError, UsageError
from relabel.core.runtime import ProgressBar, Runtime, blocked_interrupts
from relabel.store.files import write_text
from relabel.store.tasks import Task, Tasks
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import RemoteJob, run_task

PATIENCE = 60.0
"""Seconds to wait for the first worker, for another one after the last is lost, and for a file to become visible."""
_INTERVAL = 0.5  # seconds between two checks of the list of workers
_PACKAGE = "relabel-itr"
_MAX_LOSSES = 3  # workers that may be lost during one task
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that numerical libraries read when they are loaded."""
AGAIN = "Run it again; finished files are kept."
"""Advice after a loss of workers."""
_TIMEOUT = 20.0  # seconds to reach a scheduler
_STARTS = 3  # attempts to start a worker process


def worker_budget(runtime: Runtime) -> tuple[int, int]:
    """Return the threads and bytes of memory of one worker.

    Local workers share the resources of the run. A worker of a scheduler has its own; 0 threads means as many as it was
    started with.
    """
    if runtime.scheduler is not None:
        return 0, runtime.memory
    return max(1, runtime.threads // runtime.workers), runtime.memory // runtime.workers


@contextmanager
def connected(runtime: Runtime) -> Iterator[Any]:
    """Yield a `distributed.Client` of the cluster that a run requests. A local cluster ends with the `with` block."""
    try:
        import dask
        import distributed
    except ImportError as error:
        todo = "Install it with `pip install 'distributed>=2024.8'`, or use --workers 0."
        raise MissingError("Dask is not installed", where="--workers, --scheduler", todo=todo) from error
    # The errors raised below report the fate of workers. Dask's own log lines would appear between the bars.
    quiet = {"logging.distributed": "critical", "distributed.admin.log-format": "%(message)s"}
    with dask.config.set(quiet), _silent_logs():
        if runtime.scheduler is None:
            with _local(runtime) as address, distributed.Client(address, set_as_default=False) as client:
                yield client
            return
        where = runtime.scheduler
        try:
            client = _reach(where)
        except (OSError, TimeoutError) as error:
            # Refused and dropped connections, and a missing certificate.
            todo = "Start one with `dask scheduler` and workers with `dask worker ADDRESS`, or use --workers."
            raise MissingError(f"no Dask scheduler answers ({error})", where=where, todo=todo) from error
        except (ValueError, TypeError, RuntimeError, ImportError) as error:
            todo = "Write tcp://HOST:PORT, or tls://HOST:PORT with Dask's settings of TLS (see docs/scaling.md)."
            raise UsageError(f"Dask rejects this address ({error})", where=where, todo=todo) from error
        with client:
            yield client


def _reach(address: str) -> Any:
    """Connect a client to a scheduler."""
    import distributed

    outcome: list[Any] = []

    def connect() -> None:
        try:
            client.__init__(address, timeout=_TIMEOUT, set_as_default=False)
            outcome.append(client)
        except Exception as error:
            outcome.append(error)

    # `Client.__init__` has no limit of its own for this case, so it runs in a thread that can be left behind.
    client = distributed.Client.__new__(distributed.Client)
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(2 * _TIMEOUT)
    # Otherwise the half-made client would close itself when it is collected, wait, and print a traceback.
    if not outcome or outcome[0] is not client:
        client.status = "closed"
    if not outcome:
        raise TimeoutError(f"no answer within {2 * _TIMEOUT:.0f} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


@contextmanager
def _local(runtime: Runtime) -> Iterator[str]:
    """Start worker processes, each with its share of the threads and one GPU, and yield the scheduler's address.

    A process that dies is replaced, also while it starts. No worker outlives this process, even if this one is killed:
    each of them holds a pipe to it.
    """
    import dask
    from distributed import Scheduler
    from distributed.deploy.spec import SpecCluster

    nanny = _patient_nanny()
    threads, devices = str(worker_budget(runtime)[0]), gpus() if runtime.device != "cpu" else []
    local = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with TemporaryDirectory(prefix="relabel-", ignore_cleanup_errors=True) as scratch:
        workers = {}
        for i in range(runtime.workers):
            # One thread of Dask means one task at a time. Tasks limit their memory themselves.
            options: dict[str, Any] = {**local, "nthreads": 1, "memory_limit": 0, "local_directory": scratch}
            options["env"] = {"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} if devices else {}
            workers[i] = {"cls": nanny, "options": options | {"silence_logs": logging.CRITICAL}}
        before_start = {"distributed.nanny.pre-spawn-environ": dict.fromkeys(THREADS, threads)}
        with dask.config.set(before_start):
            scheduler = {"cls": Scheduler, "options": {**local, "port": 0}}
            try:
                # An interrupt in the middle would leave half a cluster, which cannot be closed cleanly.
                with blocked_interrupts():
                    cluster = SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL)
            except Exception as error:
                # Any error or exit of one process. Dask has ended the others.
                message = f"no worker process could be started ({error.__cause__ or error})"
                raise PartialError(message, where=f"--workers {runtime.workers}", todo=AGAIN) from error
            with cluster:
                yield cluster.scheduler_address


def _patient_nanny() -> Any:
    """Return a class of nannies that start another worker process if one ends while it starts."""
    from distributed import Nanny, Status

    class PatientNanny(Nanny):  # type: ignore[misc]
        async def instantiate(self) -> Any:
            for _ in range(_STARTS):
                status = await super().instantiate()
                # A cluster that is being closed ends workers as well.
                if status == Status.running or self.status not in (Status.init, Status.running):
                    break
            return status

    return PatientNanny


def gpus() -> list[str]:
    """Return the CUDA devices that this process may use, in the notation of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    with suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return answer.stdout.split()
    return []


@contextmanager
def _silent_logs() -> Iterator[None]:
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def make_on_cluster(tasks: Tasks, work: Work, job: RemoteJob) -> None:
    """Run all tasks that are not done in a Dask cluster; raises as `relabel.stages.job.run_tasks`."""
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

    `stack`: closes the cluster and removes the token.
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
        """Run tasks that do not depend on each other, each on the first idle worker."""
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
