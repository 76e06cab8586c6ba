"""Artefacts that a stage is ready to build, and the lines that report on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError, MissingError
from relabel.core.progress import SILENT, Progress
from relabel.core.runtime import release_memory
from relabel.stages.project import Project
from relabel.stages.variants import Variant
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, Manifest, read_manifest
from relabel.store.tasks import Tasks, make_all
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import RemoteJob


@dataclass(frozen=True)
class Job:
    """An artefact to be built.

    Attributes
    ----------
    out : Path
    artefact : ArtefactSpec
    fill : callable
        Writes the files through the Work that it receives.
    progress : Progress
    tasks : callable or None
        Returns the work as tasks that any worker may run; `fill` passes them to `run_tasks`.
    variant : Variant or None
        Parameters of the artefact, if it must not be replaced by a trial.
    """

    out: Path
    artefact: ArtefactSpec
    fill: Callable[[Work], None]
    progress: Progress = SILENT
    tasks: Callable[[], Tasks] | None = None
    variant: Variant | None = None

    def run(self) -> tuple[Manifest, bool]:
        """Build the artefact unless it is up to date; return its manifest and whether it was built.

        Raises
        ------
        UsageError
            If a trial would be replaced or would replace an artefact (see `Variant.check`).
        """
        guard = None if self.variant is None else self.variant.check
        result = build(self.out, self.artefact, self._fill, self.progress, guard)
        # A run builds many artefacts in one process: freed memory goes back to the system in between.
        release_memory()
        return result

    def check(self) -> None:
        """Raise if `run` would refuse to replace the existing artefact."""
        if self.variant is None:
            return
        try:
            previous = read_manifest(self.out, self.artefact.kind)
        except (MissingError, CheckError):
            return
        self.variant.check(previous)

    def _fill(self, work: Work) -> None:
        if self.variant is not None:
            work.runtime |= self.variant.record()
        self.fill(work)


def run_tasks(
    project: Project, tasks: Tasks, artefact: ArtefactSpec, work: Work, stage: Callable[..., Job], *arguments: Any
) -> None:
    """Run all tasks that are not done: in this process, in local processes, or on a Dask cluster that shares files.

    Parameters
    ----------
    project : Project
    tasks : Tasks
    artefact : ArtefactSpec
        The artefact that the tasks make.
    work : Work
    stage, arguments
        ``stage(project, *arguments)`` returns the same artefact and tasks in any process. The stage is a function
        that can be imported by its module and name; the arguments are plain values.

    Raises
    ------
    MissingError
        If Dask is needed and not installed, or no worker appears or sees the work folder.
    CheckError
        If a worker would make other files: its corpus, parameters, models or version differ.
    PartialError
        If all workers are lost, or one task ends several of them.
    RelabelError
        Any error that a task raises.
    """
    runtime = project.runtime
    if not runtime.workers and runtime.scheduler is None:
        return make_all(tasks, work, runtime.progress)
    from relabel.store.workers.dask_run import make_on_cluster

    return make_on_cluster(tasks, work, RemoteJob(project, stage, arguments, artefact, work.folder))


def run_logged(project: Project, job: Job) -> Manifest:
    """Run a job, log its status and return the manifest."""
    result = job.run()
    log_status(project, result, job.out)
    return result[0]


def log_status(project: Project, result: tuple[Manifest, bool], folder: Path) -> None:
    """Log the status of an artefact to the progress.

    Parameters
    ----------
    project : Project
    result : (Manifest, bool)
        The manifest, and whether the artefact was built by this run.
    folder : Path
    """
    manifest, built = result
    project.runtime.progress.note(status_line(built, manifest, folder))


def status_line(built: bool, manifest: Manifest, folder: Path) -> str:
    """Return one line about an artefact.

    Examples
    --------
    >>> from pathlib import Path
    >>> from relabel.stages.job import status_line
    >>> from relabel.store.manifest import Manifest
    >>> manifest = Manifest("encoding", "cider", "0123", {}, {}, {}, {"seconds": 2.5}, {})
    >>> status_line(True, manifest, Path("labels/coco/encodings/test/cider"))
    'encoding cider: built in 2.5 s (labels/coco/encodings/test/cider)'
    """
    seconds = manifest.runtime.get("seconds", 0)
    state = f"built in {seconds:.1f} s" if built else "up to date"
    state += f", {manifest.failed:,} rows failed" if manifest.failed else ""
    return f"{manifest.kind} {manifest.name}: {state} ({folder})"
