"""Dask clusters: processes of this machine for as long as one job takes, or one that somebody else runs."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory
from typing import Any

from relabel.errors import MissingError
from relabel.runtime import Runtime

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""What numerical libraries look at when they load."""
_TIMEOUT = 20.0  # seconds to reach a scheduler


def share(runtime: Runtime) -> tuple[int, int]:
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
        try:
            client = distributed.Client(runtime.scheduler, timeout=_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            todo = "Start one with `dask scheduler` and workers with `dask worker ADDRESS`, or use --workers."
            raise MissingError(f"no Dask scheduler answers ({error})", where=runtime.scheduler, todo=todo) from error
        with client:
            yield client


@contextmanager
def _local(runtime: Runtime) -> Iterator[str]:
    """Start worker processes, each with its share of threads and one GPU; yield the scheduler's address.

    A process that dies is replaced. None outlives this one, however it ends: each holds a pipe to it.
    """
    import dask
    from distributed import Nanny, Scheduler
    from distributed.deploy.spec import SpecCluster

    threads, devices = str(share(runtime)[0]), gpus() if runtime.device != "cpu" else []
    here = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with TemporaryDirectory(prefix="relabel-", ignore_cleanup_errors=True) as scratch:
        workers = {}
        for i in range(runtime.workers):
            # As many units at a time as threads of Dask's: one. Memory is the unit's own business.
            options: dict[str, Any] = {**here, "nthreads": 1, "memory_limit": 0, "local_directory": scratch}
            options["env"] = {"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} if devices else {}
            workers[i] = {"cls": Nanny, "options": options | {"silence_logs": logging.CRITICAL}}
        before_start = {"distributed.nanny.pre-spawn-environ": dict.fromkeys(THREADS, threads)}
        with dask.config.set(before_start):
            scheduler = {"cls": Scheduler, "options": {**here, "port": 0}}
            with _uninterrupted():
                cluster = SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL)
            with cluster:
                yield cluster.scheduler_address


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
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off till the end, and from whatever threads and processes begin here, those that follow included.

    A terminal sends it to all of them; the asking process alone answers, and half a cluster cannot be ended well.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # else the first process that is begun starts it, and takes the mask away
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _silent_logs() -> Iterator[None]:
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
