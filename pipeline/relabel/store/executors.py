"""Execution of steps in other processes: local workers, Dask workers, or shares for any job system.

Workers receive the names of files, not tasks. A worker prepares the same job from the same arguments, checks its
fingerprint, requests its steps from the same work folder, and writes the named file. It opens corpus and model once. If
it is killed, the file that it was writing is lost; the next run writes it again.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any
from uuid import uuid4

from relabel.core.errors import CheckError, MissingError, PartialError
from relabel.core.runtime import Runtime
from relabel.store.manifest import Spec
from relabel.store.workdir import Step, Steps, Task, Work, make_step

AGAIN = "Run it again; finished files are kept."
_CONNECT = 20.0  # timeout in seconds for connecting to a scheduler
_PATIENCE = 60.0  # timeout in seconds for the first worker, and for a file to become visible
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # read when numerical libraries are loaded


@dataclass(frozen=True)
class Call:
    """Instructions for a worker to prepare a job.

    `prepare`: returns the spec of the artefact and its steps; can be pickled. `folder`: the work folder.
    `run`: unique id of the run. After a retry, a worker does not reuse a model that failed.
    """

    prepare: Callable[[Runtime], tuple[Spec, Callable[[Work], Steps]]]
    fingerprint: str
    folder: Path
    run: str = field(default_factory=lambda: uuid4().hex)


def make_elsewhere(steps: Steps, work: Work, call: Call, runtime: Runtime) -> None:
    """Write the missing files of all steps in local processes or with the workers of a Dask scheduler."""
    if runtime.scheduler is not None:
        where, workers = runtime.scheduler, _cluster(runtime.scheduler)
    else:
        where, workers = f"--workers {runtime.workers}", _processes(runtime)
    with workers as pool:
        try:
            for step in steps:
                _run(pool, partial(make_file, call, runtime.of_worker()), runtime, step, work)
        # Compared by name, to avoid importing Dask for its KilledWorker.
        except Exception as error:
            if type(error).__name__ not in ("BrokenProcessPool", "KilledWorker"):
                raise
            problem = "a worker process was killed, probably because the memory was exhausted"
            raise PartialError(problem, where=where, hint=AGAIN) from error


def make_share(steps: Steps, work: Work, share: tuple[int, int], runtime: Runtime) -> None:
    """Write every n-th file of each step: the files of share i of n, counted from 1.

    Raises PartialError if a step needs files of other shares that do not exist yet.
    """
    index, count = share
    for step in steps:
        make_step(replace(step, tasks=step.tasks[index - 1 :: count]), work, runtime.progress)
        if step.last:
            return
        if missing := step.missing(work):
            problem = f"{len(missing):,} of {len(step.tasks):,} files are missing, first {missing[0].file}"
            raise PartialError(problem, where=step.title, hint="Run it again after the other shares have finished.")


_prepared: dict[str, tuple[dict[str, Task], Steps, Work]] = {}  # by run
_lock = threading.Lock()  # one task at a time, because a task uses all threads and memory of the worker


def make_file(call: Call, runtime: Runtime, file: str) -> None:
    """Write one file in a worker."""
    with _lock:
        prepared = _prepared.pop(call.run, None)
        # Free the model of the previous artefact.
        _prepared.clear()
        tasks, steps, work = prepared or _prepare(call, runtime)
        while file not in tasks:
            tasks.update((task.file, task) for task in next(steps).tasks)
        # Stored only now: a generator that raised yields no more steps, so a retry must prepare the job again.
        _prepared[call.run] = tasks, steps, work
        work.file(file, tasks[file].write)


def _prepare(call: Call, runtime: Runtime) -> tuple[dict[str, Task], Steps, Work]:
    """Prepare a job in a worker: an empty dict for its tasks, its steps and its work folder."""
    if not call.folder.is_dir():
        hint = "All workers need the same files under the same path; use --workers on one machine."
        raise MissingError("a worker cannot find the work folder", where=str(call.folder), hint=hint)
    spec, steps = call.prepare(runtime)
    if spec.fingerprint != call.fingerprint:
        problem = f"a worker would build {spec.kind} {spec.name} with a different fingerprint"
        hint = "All workers need the same version of relabel, captions, files and models."
        raise CheckError(problem, where=str(call.folder), hint=hint)
    work = Work(call.folder)
    return {}, steps(work), work


@contextmanager
def _processes(runtime: Runtime) -> Iterator[Executor]:
    """Yield a pool of local processes that share the GPUs."""
    context, count = get_context("spawn"), runtime.workers
    devices: Any = context.SimpleQueue()
    names = gpus() if runtime.device != "cpu" else [""]
    for i in range(count):
        devices.put(names[i % len(names)])
    before = {name: os.environ.get(name) for name in _THREADS}
    # Libraries read the number of threads when a worker starts. It inherits the environment of this process.
    os.environ.update(dict.fromkeys(_THREADS, str(runtime.of_worker().threads)))
    try:
        with ProcessPoolExecutor(count, context, initializer=_start, initargs=(devices,)) as pool:
            yield pool
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start(devices: Any) -> None:
    """Initialize a worker process: set its GPU and its signal handling."""
    os.environ["CUDA_VISIBLE_DEVICES"] = devices.get()
    start_worker()


def start_worker() -> None:
    """Let Ctrl-C end this child process of `multiprocessing` without a traceback, and end it with its parent.

    Without this, a worker whose parent process was killed would wait forever and keep its memory.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if parent := parent_process():

        def wait() -> None:
            parent.join()
            os._exit(1)  # sys.exit in a thread would end only the thread

        threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    """Yield the workers of a Dask scheduler. They share files, but have their own threads and memory."""
    from distributed import Client

    try:
        client = Client(address, set_as_default=False, timeout=_CONNECT)
        client.wait_for_workers(1, _PATIENCE)
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        hint = "Start `dask scheduler`, and workers with `dask worker ADDRESS`."
        raise MissingError(f"no Dask scheduler with workers responds ({error})", where=address, hint=hint) from error
    with client:
        yield client.get_executor(pure=False, retries=3)


def _run(pool: Executor, make: Callable[[str], None], runtime: Runtime, step: Step, work: Work) -> None:
    """Write the missing files of a step in other processes."""
    waiting = step.missing(work)
    with runtime.progress.bar(step.title, step.size, step.unit) as bar:
        bar.advance(step.size - sum(task.size for task in waiting))
        # Workers start here. Ctrl-C is blocked until they are ready; then only this process handles it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            futures = {pool.submit(make, task.file): task for task in waiting}
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            for future in as_completed(futures):
                future.result()
                bar.advance(futures[future].size)
        finally:
            for future in futures:
                future.cancel()
    # On a network file system, files of other machines may become visible with a delay.
    begun = time.monotonic()
    while missing := step.missing(work):
        if time.monotonic() - begun > _PATIENCE:
            problem = "written by a worker, but not visible to this process"
            raise PartialError(problem, where=missing[0].file, hint=AGAIN)
        time.sleep(0.5)


def gpus() -> list[str]:
    """Return the visible CUDA devices, as named in CUDA_VISIBLE_DEVICES; [""] if there is none."""
    import torch

    every = ",".join(map(str, range(torch.cuda.device_count())))
    return [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", every).split(",")]
