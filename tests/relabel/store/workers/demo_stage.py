"""A stage of ten small files that worker processes import by name; it counts its models and can wait or fail."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from relabel.core.runtime import Advance
from relabel.core.worker_pool import LineError
from relabel.stages import Job, Project
from relabel.stages.job import run_tasks
from relabel.store.artefact import Recipe
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work

FIRST = "first.parquet"
FILES = 8


class DemoTasks(Tasks):
    """One file, and eight files that depend on it."""

    def __init__(self, notes: Path, how: str) -> None:
        self.notes, self.how = notes, how

    @cached_property
    def model(self) -> int:
        with (self.notes / "models").open("a") as log:
            log.write(f"{os.getpid()}\n")
        return 7

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        yield TaskGroup("first", "files", [Task(FIRST, 1)])
        yield TaskGroup("second", "rows", [Task(f"part-{i:05d}-of-{FILES:05d}.parquet", i + 1) for i in range(FILES)])

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        if task.file == FIRST:
            work.table(FIRST, lambda: pa.table({"x": [self.model]}))
            return advance(1)
        if task.size == 3 and self.how == "waits":
            self._wait()
        if task.size == 3 and self.how == "fails":
            raise LineError("a line that nobody takes", 5, "Look at it.")
        if task.size == 3 and self.how == "deadly":
            os._exit(1)
        time.sleep(0.02)
        work.table(task.file, lambda: pa.table({"x": [self.model * i for i in range(task.size)]}))
        return advance(task.size)

    def finish(self, work: Work) -> None:
        work.excluded.add(FIRST)
        work.facts["files"] = len(work.names())

    def _wait(self) -> None:
        """Record the arrival of a process, and wait for permission to continue."""
        (self.notes / "here.part").write_text(str(os.getpid()))
        (self.notes / "here.part").rename(self.notes / "here")
        while not (self.notes / "go").exists():
            time.sleep(0.02)


def demo(project: Project, out: str, how: str = "plain", value: int = 0) -> Job:
    tasks = partial(DemoTasks, project.labels, how)

    def fill(work: Work) -> None:
        run_tasks(project, tasks(), job.spec, work, demo, out, how, value)

    recipe = Recipe("demo", "demo", lambda: {"value": value}, {"corpus": "abc"}, fill)
    job = Job(project, Path(out), recipe, "demo", tasks=tasks)
    return job


def other_here(project: Project, out: str, pid: int) -> Job:
    """Return a stage with another result in any other process, as with another corpus or model."""
    tasks = partial(DemoTasks, project.labels, "plain")

    def fill(work: Work) -> None:
        run_tasks(project, tasks(), job.spec, work, other_here, out, -1 if pid == os.getpid() else pid)

    recipe = Recipe("demo", "demo", lambda: {"same": os.getpid() == pid}, {"corpus": "abc"}, fill)
    job = Job(project, Path(out), recipe, "demo", tasks=tasks)
    return job
