"""An artefact that a stage is ready to build, and what is said of it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError, MissingError
from relabel.core.process_memory import release
from relabel.core.progress import SILENT, Progress
from relabel.stages.project import Project
from relabel.stages.variants import Variant
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, Manifest, read_manifest
from relabel.store.tasks import Tasks
from relabel.store.workdir import Work
from relabel.store.workers import RemoteJob, make


@dataclass(frozen=True)
class Job:
    """An artefact to be built: where, from what, and how.

    Attributes
    ----------
    out : Path
    artefact : ArtefactSpec
    fill : callable
        Writes the files through the Work it gets.
    progress : Progress
    tasks : callable or None
        Returns the work in tasks that any worker may make; `fill` has them made (see `run_tasks`).
    variant : Variant or None
        Its parameters, where a trial must not replace it.
    """

    out: Path
    artefact: ArtefactSpec
    fill: Callable[[Work], None]
    progress: Progress = SILENT
    tasks: Callable[[], Tasks] | None = None
    variant: Variant | None = None

    def run(self) -> tuple[Manifest, bool]:
        """Build it, unless it is there.

        Raises
        ------
        UsageError
            If a trial would be replaced or would replace an artefact (see `Variant.check`).
        """
        guard = None if self.variant is None else self.variant.check
        made = build(self.out, self.artefact, self._fill, self.progress, guard)
        release()
        return made

    def check(self) -> None:
        """Refuse what `run` would refuse: a trial that replaces an artefact, or the replacement of a trial."""
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
    """Make tasks in this process or by workers, as the runtime says.

    Parameters
    ----------
    project : Project
    tasks : Tasks
    artefact : ArtefactSpec
        The artefact they are for.
    work : Work
    stage, arguments
        ``stage(project, *arguments)`` gives any process the same spec and tasks: a function known by its module and
        name, and plain values.

    Raises
    ------
    RelabelError
        See `relabel.store.workers.make`.
    """
    make(tasks, work, RemoteJob(project, stage, arguments, artefact, work.folder))


def run_logged(project: Project, job: Job) -> Manifest:
    """Run a job, log its status, and return the artefact's manifest."""
    built = job.run()
    log_status(project, built, job.out)
    return built[0]


def log_status(project: Project, made: tuple[Manifest, bool], folder: Path) -> None:
    """Tell the progress what became of a stage."""
    project.runtime.progress.note(status_line(made[1], made[0], folder))


def status_line(built: bool, manifest: Manifest, folder: Path) -> str:
    """Say one line about a stage's artefact."""
    seconds = manifest.runtime.get("seconds", 0)
    state = f"built in {seconds:.1f} s" if built else "up to date"
    state += f", {manifest.failed:,} rows failed" if manifest.failed else ""
    return f"{manifest.kind} {manifest.name}: {state} ({folder})"
