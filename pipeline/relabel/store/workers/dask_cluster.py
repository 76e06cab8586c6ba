"""Dask clusters: local processes for the duration of one job, or the cluster of an external scheduler."""

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
"""Environment variables that numerical libraries read when they are loaded."""
AGAIN = "Run it again; finished files are kept."
"""Advice after a loss of workers."""
_TIMEOUT = 20.0  # seconds to reach a scheduler
_STARTS = 3  # attempts to start a worker process


def worker_budget(runtime: Runtime) -> tuple[int, int]:
    """Return the threads and bytes of memory of one worker.

    Local workers share the resources of the run. A worker of a scheduler has its own; 0 threads means as many as it was
    started with.

    Examples
    --------
    >>> worker_budget(Runtime(threads=8, memory=4000, workers=2))
    (4, 2000)
    """
    if runtime.scheduler is not None:
        return 0, runtime.memory
    return max(1, runtime.threads // runtime.workers), runtime.memory // runtime.workers


@contextmanager
def connected(runtime: Runtime) -> Iterator[Any]:
    """Yield a `distributed.Client` of the cluster that a run requests. A local cluster ends with the `with` block.

    Raises
    ------
    MissingError
        If Dask is not installed, or no scheduler answers at the address.
    UsageError
        If the address or Dask's configuration of TLS for it is invalid.
    PartialError
        If local worker processes end while they start.
    """
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
    """Connect a client to a scheduler.

    Raises
    ------
    TimeoutError
        If the address accepts connections and never answers. Dask itself would wait forever.
    Exception
        Any error that Dask raises.
    """
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
