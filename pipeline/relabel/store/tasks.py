"""The work on an artefact, cut into steps of tasks.

A task makes one file, can run in any process, and waits for no other task of its step. A step begins when the step
before it is complete, so its tasks may read what earlier steps wrote. A killed run resumes with the missing files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from relabel.core.runtime import Progress
from relabel.store.workdir import Work, write_table


@dataclass(frozen=True)
class Task:
    """One file. `write` takes the path to fill; its bytes depend on parameters, inputs and earlier steps alone.

    `size`: amount of work, in the unit of its step. `write` may report parts of it by `Progress.advance`.
    """

    file: str
    write: Callable[[Path], object]
    size: int = 1


@dataclass(frozen=True)
class Step:
    """Tasks that do not depend on each other.

    `title`, `unit`: title of the progress bar, and the unit of the sizes ("captions").
    `last`: True if no step follows this one.
    """

    title: str
    unit: str
    tasks: Sequence[Task]
    last: bool = False

    @property
    def size(self) -> int:
        """Work of all tasks."""
        return sum(task.size for task in self.tasks)

    def missing(self, work: Work) -> list[Task]:
        """Return the tasks that are not done."""
        return [task for task in self.tasks if not work.done(task.file)]


Steps = Iterator[Step]
"""Steps in order, each requested when the one before it is complete. After the last one, the generator sets the facts
of the work folder, and the names of files that are not part of the artefact, in the main process alone."""


def table_task(file: str, make: Callable[[], pa.Table], size: int = 1, plain: bool = False) -> Task:
    """Return the task of a Parquet file; `plain` as for `write_table`."""
    return Task(file, partial(write_table, make, plain), size)


def make_step(step: Step, work: Work, progress: Progress) -> None:
    """Make the files of a step that are missing, in this process."""
    with progress.bar(step.title, step.size, step.unit) as bar:
        done = 0
        for task in step.tasks:
            work.file(task.file, task.write)
            done += task.size
            # Finished files count in full, and so does work that a task did not report.
            bar.reach(done)
