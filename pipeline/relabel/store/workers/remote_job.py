"""Jobs as they are sent to a worker, and the worker's side, which rebuilds a job once per process and runs its tasks.

A job carries its recipe, its work folder, and the values by which the worker checks that it does the same job.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import SILENT, Runtime, ignore_progress
from relabel.store.manifest import FORMAT, Spec
from relabel.store.tasks import Task, Tasks
from relabel.store.workdir import Work

_MAX_CACHED = 2  # jobs kept in memory, each of which may hold a model
_cache: OrderedDict[tuple[str, str], Tasks] = OrderedDict()
_lock = threading.Lock()  # one task at a time: it uses all threads and memory of the worker


class RemoteProject(Protocol):
    """A project that can be sent to a worker."""

    @property
    def runtime(self) -> Runtime:
        """Resources and folders of a run."""

    def for_worker(self, runtime: Runtime) -> Self:
        """Return the same project with this runtime and absolute paths, for a process with another current folder."""


class StageJob(Protocol):
    """A job of a stage and its tasks."""

    @property
    def spec(self) -> Spec:
        """Identity of the artefact."""

    @property
    def tasks(self) -> Callable[[], Tasks]:
        """Factory of the tasks."""


@dataclass(frozen=True)
class RemoteJob:
    """A recipe from which any process can rebuild a job.

    `stage`: function of a stage, which is pickled by module and name. ``stage(project, *arguments)`` returns the job.
    `arguments`: plain values.
    `artefact`: spec that the rebuilt job must have.
    `folder`: work folder.
    `token`: name of a file in the work folder that contains its own name. A process that reads it sees the same folder.
    `versions`: versions of relabel and of its file format.
    """

    project: RemoteProject
    stage: Callable[..., StageJob]
    arguments: tuple[Any, ...]
    artefact: Spec
    folder: Path
    token: str = ""
    versions: str = ""

    def for_worker(self, token: str, threads: int, memory: int) -> RemoteJob:
        """Return the job as it is sent: silent, with absolute paths and the resources of one worker.

        `threads`: 0 for the number of threads that the worker was started with. `memory`: bytes.
        """
        # A worker runs its tasks itself: without workers of its own and without a display.
        runtime = replace(
            self.project.runtime,
            data=self.project.runtime.data.absolute(),
            threads=threads,
            memory=memory,
            workers=0,
            scheduler=None,
            progress=SILENT,
        )
        return replace(
            self,
            project=self.project.for_worker(runtime),
            folder=self.folder.absolute(),
            token=token,
            versions=versions(),
        )

    def check_place(self) -> None:
        """Raise unless this process has the same version of relabel and sees the work folder."""
        if (installed := versions()) != self.versions:
            todo = "Install the same version everywhere."
            raise CheckError(f"expected {self.versions}, found {installed}", where=worker_name(), todo=todo)
        # A folder of the same name on another disk exists, but does not hold this token.
        try:
            seen = (self.folder / self.token).read_text(encoding="utf-8")
        except OSError:
            seen = ""
        if seen != self.token:
            todo = "All workers need the same files under the same path; use --workers on one machine."
            raise MissingError(f"does not see the work folder {self.folder}", where=worker_name(), todo=todo)

    def check_job(self, rebuilt: Spec) -> None:
        """Raise unless the rebuilt job has the fingerprint of this one."""
        if rebuilt.fingerprint == self.artefact.fingerprint:
            return
        # Inputs come first: other files are the likelier cause than other parameters, which are sent.
        for part in ("inputs", "semantic"):
            expected, actual = getattr(self.artefact, part), getattr(rebuilt, part)
            for name in sorted({*expected, *actual}):
                if expected.get(name) != actual.get(name):
                    message = f"expected {name} {expected.get(name)}, found {actual.get(name)}"
                    raise CheckError(message, where=worker_name(), todo="All workers need the same files and models.")
        raise CheckError(f"makes {rebuilt.kind}, not {self.artefact.kind}", where=worker_name())


def versions() -> str:
    """Return the versions of relabel and of its file format."""
    return f"relabel {version('relabel-itr')}, format {FORMAT}"


def worker_name() -> str:
    """Return the name of this worker, for messages."""
    import socket

    from distributed import get_worker

    try:
        return f"worker {get_worker().address} on {socket.gethostname()}"
    except ValueError:
        return f"process on {socket.gethostname()}"


def run_task(remote: RemoteJob, task: Task) -> None:
    """Write the file of one task."""
    with _lock:
        remote.check_place()
        _tasks(remote).make(Work(remote.folder), task, ignore_progress)


def _tasks(remote: RemoteJob) -> Tasks:
    """Return the tasks of a job, from the cache or rebuilt from its recipe."""
    key = remote.artefact.fingerprint, remote.token
    if key not in _cache:
        project = remote.project
        # A job sent to a scheduler names no number of threads: each worker uses those that it was started with.
        if not project.runtime.threads:
            project = project.for_worker(replace(project.runtime, threads=_threads()))
        job = remote.stage(project, *remote.arguments)
        remote.check_job(job.spec)
        _cache[key] = job.tasks()
        # The least recently used job goes first.
        while len(_cache) > _MAX_CACHED:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    return _cache[key]


def _threads() -> int:
    """Return the number of threads that this worker was started with."""
    from distributed import get_worker

    return max(1, int(get_worker().state.nthreads))
