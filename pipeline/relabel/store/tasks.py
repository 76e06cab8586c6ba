"""The work on an artefact, cut into tasks.

A task makes one file, can run in any worker, and waits for no other task. Tasks come in groups. A group begins when the
group before it is complete. A killed run resumes with the tasks whose files are missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from relabel.core.runtime import Advance, Progress
from relabel.store.workdir import Work


@dataclass(frozen=True)
class Task:
    """One file of an artefact's work.

    `file`: name of the file in the work folder. The task is done when the file is (see `Work.done`).
    `size`: amount of work, in the unit of its group.
    """

    file: str
    size: int


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that do not depend on each other.

    `title`, `measure`: title of the progress bar, and the unit of the sizes ("captions").
    """

    title: str
    measure: str
    tasks: Sequence[Task]


class Tasks(ABC):
    """The work on one artefact.

    Each worker has an instance of its own, made from the same parameters. Instances share only the work folder.
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


class NoTasks(Tasks):
    """Work on an encoding without files."""

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Return no task groups."""
        yield from ()

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Raise, because there are no tasks."""
        raise NotImplementedError(task.file)


def make_group(group: TaskGroup, work: Work, progress: Progress, make: Callable[[Task, Advance], None]) -> None:
    """Run the tasks of a group that are not done, in this process, with a progress bar.

    `make`: writes the file of a task, and reports the amounts of work done.
    """
    with progress.bar(group.title, sum(task.size for task in group.tasks), group.measure) as bar:
        for task in group.tasks:
            # Work of an earlier run counts in full, so that the bar always ends at its total.
            if work.done(task.file):
                bar.advance(task.size)
            else:
                make(task, bar.advance)


def make_all(tasks: Tasks, work: Work, progress: Progress) -> None:
    """Run all tasks that are not done, in this process."""
    tasks.start(work)
    for group in tasks.groups(work):
        make_group(group, work, progress, partial(tasks.make, work))
    tasks.finish(work)
