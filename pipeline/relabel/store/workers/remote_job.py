"""What a worker gets: how to make a job again, where its files grow, and how to tell that it is the same job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self

from relabel.core.errors import CheckError, MissingError
from relabel.core.progress import SILENT
from relabel.core.runtime import Runtime
from relabel.store.manifest import FORMAT, ArtefactSpec
from relabel.store.tasks import Tasks


class RemoteProject(Protocol):
    """A project that can be sent to a worker."""

    @property
    def runtime(self) -> Runtime:
        """Resources and folders of a run."""

    def for_worker(self, runtime: Runtime) -> Self:
        """Return the same project for a process in another folder: with this runtime and absolute paths."""


class StageJob(Protocol):
    """A job of a stage, with its tasks."""

    @property
    def artefact(self) -> ArtefactSpec:
        """Description of the artefact."""

    @property
    def tasks(self) -> Callable[[], Tasks] | None:
        """Factory of the tasks; None for a job without any."""


@dataclass(frozen=True)
class RemoteJob:
    """A job that any process can make again.

    Attributes
    ----------
    project : RemoteProject
    stage : callable
        A stage's function, by its module and name: ``stage(project, *arguments)`` is the job, with its tasks.
    arguments : tuple
        Plain values.
    artefact : ArtefactSpec
        What the job must turn out to be.
    folder : Path
        The work folder.
    token : str
        Name of a file in the work folder, which holds its own name: who reads it sees this folder and no other.
    versions : str
        Of relabel and of its files.
    """

    project: RemoteProject
    stage: Callable[..., StageJob]
    arguments: tuple[Any, ...]
    artefact: ArtefactSpec
    folder: Path
    token: str = ""
    versions: str = ""

    def for_worker(self, token: str, threads: int, memory: int) -> RemoteJob:
        """Make it fit to be sent: silent, with absolute paths and one worker's share of threads and memory.

        Parameters
        ----------
        token : str
        threads : int
            0 for as many as the worker has.
        memory : int
            Bytes.
        """
        old = self.project.runtime
        runtime = replace(
            old,
            data=old.data.absolute(),
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
        """Make sure that this process has the same version of relabel and sees the work folder.

        Raises
        ------
        CheckError, MissingError
        """
        if (found := versions()) != self.versions:
            todo = "Install the same version everywhere."
            raise CheckError(f"expected {self.versions}, found {found}", where=worker_name(), todo=todo)
        try:
            seen = (self.folder / self.token).read_text(encoding="utf-8")
        except OSError:
            seen = ""
        if seen != self.token:
            todo = "All workers need the same files under the same path; use --workers on one machine."
            raise MissingError(f"does not see the work folder {self.folder}", where=worker_name(), todo=todo)

    def check_job(self, found: ArtefactSpec) -> None:
        """Make sure that the job made again is the one ordered.

        Raises
        ------
        CheckError
            Naming what differs.
        """
        if found.fingerprint == self.artefact.fingerprint:
            return
        for part in ("inputs", "semantic"):
            expected, other = getattr(self.artefact, part), getattr(found, part)
            for name in sorted({*expected, *other}):
                if expected.get(name) != other.get(name):
                    what = f"expected {name} {expected.get(name)}, found {other.get(name)}"
                    raise CheckError(what, where=worker_name(), todo="All workers need the same files and models.")
        raise CheckError(f"makes {found.kind}, not {self.artefact.kind}", where=worker_name())


def versions() -> str:
    """Return the versions of relabel and of its files."""
    return f"relabel {version('relabel-itr')}, format {FORMAT}"


def worker_name() -> str:
    """Name the worker that this process is."""
    import socket

    from distributed import get_worker

    try:
        return f"worker {get_worker().address} on {socket.gethostname()}"
    except ValueError:
        return f"process on {socket.gethostname()}"
