"""Dask clusters: processes of this machine for as long as one job takes, or one that somebody else runs."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

from relabel.core.errors import MissingError, PartialError, UsageError
from relabel.core.runtime import Runtime
from relabel_train.training.interrupts import blocked_interrupts

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""What numerical libraries look at when they load."""
AGAIN = "Run it again; finished files are kept."
"""What to do after a loss of workers."""
_TIMEOUT = 20.0  # seconds to reach a scheduler
_STARTS = 3  # times that a worker process may end before it has started


def worker_budget(runtime: Runtime) -> tuple[int, int]:
    """Return the threads and bytes of one worker: local ones share what the run may use, others have their own."""
    if runtime.scheduler is not None:
        return 0, runtime.memory
    return max(1, runtime.threads // runtime.workers), runtime.memory // runtime.workers


@contextmanager
def connected(runtime: Runtime) -> Iterator[Any]:
    """Yield a `distributed.Client` of the cluster that a run asks for; a local one ends with the context.

    Raises
    ------
    MissingError
        If Dask is not installed, or there is no scheduler at the address.
    UsageError
        If the address, or Dask's configuration of TLS for it, makes no sense.
    PartialError
        If local worker processes end while they start.
    """
    try:
        import dask
        import distributed
    except ImportError as error:
        todo = "Install it with `pip install 'distributed>=2024.8'`, or use --workers 0."
        raise MissingError("Dask is not installed", where="--workers, --scheduler", todo=todo) from error
    # What happens to workers is told by the errors here; Dask's own lines would go between the bars.
    calm = {"logging.distributed": "critical", "distributed.admin.log-format": "%(message)s"}
    with dask.config.set(calm), _silent_logs():
        if runtime.scheduler is None:
            with _local(runtime) as address, distributed.Client(address, set_as_default=False) as client:
                yield client
            return
        where = runtime.scheduler
        try:
            client = _reach(where)
        except (OSError, TimeoutError) as error:  # a certificate that is not there, and whatever a connection says
            todo = "Start one with `dask scheduler` and workers with `dask worker ADDRESS`, or use --workers."
            raise MissingError(f"no Dask scheduler answers ({error})", where=where, todo=todo) from error
        except (ValueError, TypeError, RuntimeError, ImportError) as error:
            todo = "Write tcp://HOST:PORT, or tls://HOST:PORT with Dask's settings of TLS (see docs/scaling.md)."
            raise UsageError(f"Dask does not take this address ({error})", where=where, todo=todo) from error
        with client:
            yield client


def _reach(address: str) -> Any:
    """Connect a client to a scheduler.

    Raises
    ------
    TimeoutError
        If something takes connections there and never answers, which Dask itself would wait for without end.
    Exception
        Whatever Dask raises.
    """
    import distributed

    outcome: list[Any] = []

    def connect() -> None:
        try:
            client.__init__(address, timeout=_TIMEOUT, set_as_default=False)
            outcome.append(client)
        except Exception as error:
            outcome.append(error)

    client = distributed.Client.__new__(distributed.Client)
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(2 * _TIMEOUT)
    if not outcome or outcome[0] is not client:
        client.status = "closed"  # else it closes itself when it is collected, waits for that, and prints a traceback
    if not outcome:
        raise TimeoutError(f"nothing was said within {2 * _TIMEOUT:.0f} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


@contextmanager
def _local(runtime: Runtime) -> Iterator[str]:
    """Start worker processes, each with its share of threads and one GPU; yield the scheduler's address.

    A process that dies is replaced, while it starts too. None outlives this one, however it ends: each holds a pipe to
    it.
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
            # As many tasks at a time as threads of Dask's: one. Memory is the task's own business.
            options: dict[str, Any] = {**local, "nthreads": 1, "memory_limit": 0, "local_directory": scratch}
            options["env"] = {"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} if devices else {}
            workers[i] = {"cls": nanny, "options": options | {"silence_logs": logging.CRITICAL}}
        before_start = {"distributed.nanny.pre-spawn-environ": dict.fromkeys(THREADS, threads)}
        with dask.config.set(before_start):
            scheduler = {"cls": Scheduler, "options": {**local, "port": 0}}
            try:
                with blocked_interrupts():  # half a cluster cannot be ended well
                    cluster = SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL)
            except Exception as error:  # whatever a process raised or ended with; Dask has ended the others
                what = f"no worker process could be started ({error.__cause__ or error})"
                raise PartialError(what, where=f"--workers {runtime.workers}", todo=AGAIN) from error
            with cluster:
                yield cluster.scheduler_address


def _patient_nanny() -> Any:
    """Make the class of the processes that watch workers: one whose worker ends while it starts begins another."""
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
    """List the CUDA devices that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    with suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return found.stdout.split()
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
