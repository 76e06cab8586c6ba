"""An artefact that a stage is ready to build, and what is said of it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relabel.progress import SILENT, Progress
from relabel.stages.project import Project
from relabel.store.artefact import build
from relabel.store.manifest import Draft, Manifest
from relabel.store.work import Work


@dataclass(frozen=True)
class Job:
    """An artefact to be built: where, from what, and how."""

    out: Path
    draft: Draft
    fill: Callable[[Work], None]
    progress: Progress = SILENT

    def run(self) -> tuple[Manifest, bool]:
        """Build it, unless it is there."""
        return build(self.out, self.draft, self.fill, self.progress)


def note(project: Project, made: tuple[Manifest, bool], folder: Path) -> None:
    """Tell the progress what became of a stage."""
    project.runtime.progress.note(status(made[1], made[0], folder))


def status(built: bool, manifest: Manifest, folder: Path) -> str:
    """Say one line about a stage's artefact."""
    seconds = manifest.runtime.get("seconds", 0)
    state = f"built in {seconds:.1f} s" if built else "up to date"
    return f"{manifest.kind} {manifest.name}: {state} ({folder})"
