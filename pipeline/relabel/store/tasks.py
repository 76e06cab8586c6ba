"""The work on an artefact, cut into tasks. A task makes one file, can run in any worker, and waits for no other task.

Tasks come in groups. A group begins when the group before it is complete. A killed run resumes with the tasks whose
files are missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core.progress import Advance, Progress
from relabel.store.workdir import Work


@dataclass(frozen=True)
class Task:
    """One file of an artefact's work.

    Attributes
    ----------
    file : str
        Name of the file in the work folder. The task is done when the file is (see `Work.done`).
    size : int
        Amount of work, in the unit of its group.
    """

    file: str
    size: int


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that do not depend on each other.

    Attributes
    ----------
    title, measure : str
        Title of the progress bar, and the unit of the sizes ("captions").
    tasks : sequence of Task
    """

    title: str
    measure: str
    tasks: Sequence[Task]


class Tasks(ABC):
    """The work on one artefact.

    Each worker has an instance of its own, made from the same parameters. Instances share only the work folder.
    """

    def set_previous(self, out: Path, semantic: dict[str, Any]) -> None:  # noqa: B027
        """Let files or rows be copied from an earlier artefact, if this work can. Called before `start`.

        Parameters
        ----------
        out : Path
            Folder of the artefact that is about to be replaced. It need not exist.
        semantic : dict
            Semantic parameters of the new artefact.
        """

    def start(self, work: Work) -> None:  # noqa: B027
        """Write files that all tasks need, such as a vocabulary. Called in the main process before any task."""

    @abstractmethod
    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Yield the groups in order. Each one is requested when the group before it is complete."""

    @abstractmethod
    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Write one task's file through `work`, in any process.

        The bytes depend only on the parameters, the inputs and the files of earlier groups. `advance` is called with
        the amount of work done. The amounts add up to ``task.size``.
        """

    def finish(self, work: Work) -> None:  # noqa: B027
        """Set the facts and exclude auxiliary files. Called in the main process after all tasks."""


@dataclass
class SavedWork:
    """Amount of a group's work that is on disk, so that the message of an interrupt can state it.

    Attributes
    ----------
    group : TaskGroup
    complete : int
        Work of the finished tasks.
    partial : int
        Work of the current task that has been saved.

    Examples
    --------
    >>> from relabel.store.tasks import SavedWork, Task, TaskGroup
    >>> saved = SavedWork(TaskGroup("embeddings", "captions", [Task("a", 5000), Task("b", 3000)]), complete=5000)
    >>> saved.describe()
    '5,000 of 8,000 captions (embeddings)'
    """

    group: TaskGroup
    complete: int = 0
    partial: int = 0

    def describe(self) -> str:
        """Return the amount in words."""
        total = sum(task.size for task in self.group.tasks)
        return f"{self.complete + self.partial:,} of {total:,} {self.group.measure} ({self.group.title})"


saved: SavedWork | None = None
"""Saved work of the group that this process works on."""


def count_saved(amount: int) -> None:
    """Count work of the current task that was saved before the task is complete."""
    if saved is not None:
        saved.partial += amount


def make_group(group: TaskGroup, work: Work, progress: Progress, make: Callable[[Task, Advance], None]) -> None:
    """Run the tasks of a group that are not done, in this process, with a progress bar.

    Parameters
    ----------
    group : TaskGroup
    work : Work
    progress : Progress
    make : callable
        Writes the file of a task, and reports the amounts of work done.
    """
    global saved
    saved = SavedWork(group)
    try:
        with progress.bar(group.title, sum(task.size for task in group.tasks), group.measure) as bar:
            for task in group.tasks:
                # Work of an earlier run counts in full, so that the bar always ends at its total.
                if work.done(task.file):
                    bar.advance(task.size)
                else:
                    make(task, bar.advance)
                saved.complete, saved.partial = saved.complete + task.size, 0
    finally:
        saved = None


def make_all(tasks: Tasks, work: Work, progress: Progress) -> None:
    """Run all tasks that are not done, in this process."""
    tasks.start(work)
    for group in tasks.groups(work):
        make_group(group, work, progress, partial(tasks.make, work))
    tasks.finish(work)
