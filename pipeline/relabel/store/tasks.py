"""An artefact's work cut into tasks: one task, one file, which any worker may make and no other task waits for.

Tasks stand in groups: a group begins when the one before it is whole. A killed run makes the tasks that are not there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relabel.core.progress import Advance, Progress
from relabel.store.workdir import Work


@dataclass(frozen=True)
class Task:
    """One file of an artefact's work.

    Attributes
    ----------
    file : str
        Its name in the work folder; the task is done when the file is (Work.done).
    size : int
        What it counts in its group's total.
    """

    file: str
    size: int


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that need nothing of each other.

    Attributes
    ----------
    title, measure : str
        What a bar calls the group, and what the sizes of its tasks count ("captions").
    tasks : sequence of Task
    """

    title: str
    measure: str
    tasks: Sequence[Task]


class Tasks(ABC):
    """How an artefact is made. Each worker has its own, made from the same parameters; they meet in the work folder."""

    def start(self, work: Work) -> None:  # noqa: B027
        """Write what all tasks need (a vocabulary); in the asking process, before any task."""

    @abstractmethod
    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """List the groups in order; each is asked for when the one before it is whole."""

    @abstractmethod
    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Make one task's file through `work`, whole or not at all; in whichever process, on its own.

        The bytes depend on nothing but the parameters, the inputs and the files of earlier groups. `advance` is told
        how much of ``task.size`` is done, in all exactly that much.
        """

    def finish(self, work: Work) -> None:  # noqa: B027
        """Note the facts, and exclude files that only other files needed; in the asking process, after all tasks."""


def make_all(tasks: Tasks, work: Work, progress: Progress) -> None:
    """Make every task that is not done, in this process."""
    tasks.start(work)
    for group in tasks.groups(work):
        with progress.bar(group.title, sum(task.size for task in group.tasks), group.measure) as bar:
            for task in group.tasks:
                if work.done(task.file):
                    bar.advance(task.size)
                else:
                    tasks.make(work, task, bar.advance)
    tasks.finish(work)
