"""Work folders, in which an artefact grows file by file, and the work on it, cut into steps of tasks.

A file is written under a temporary name, made durable and renamed. It has its name only if it is complete, so its
existence is the record that it is done: a later run makes the files that are missing.

A task makes one file, can run in any process, and waits for no other task of its step. A step begins when the step
before it is complete, so its tasks may read what earlier steps wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.runtime import Progress
from relabel.store.files import write_atomic, write_plain
from relabel.store.manifest import MANIFEST, FileEntry
from relabel_train.files import sha256_file


@dataclass
class Work:
    """A folder in which an artefact grows.

    `metadata`, `provenance`: entries of the manifest to write.
    `excluded`: names of files that are not part of the artefact. They are removed after the manifest is written, so
        metadata that were computed from them survive a kill.
    `prefix`: begins the names of all files that `file` writes.
    """

    folder: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    prefix: str = ""

    def warn(self, *texts: str) -> None:
        """Add warnings to the metadata; what is known before the work on a step is said before it."""
        self.metadata.setdefault("warnings", []).extend(texts)

    def done(self, name: str) -> bool:
        """Return whether a file is complete."""
        return (self.folder / name).exists()

    def file(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file, unless it is done already. `write` takes the path to fill."""
        if not self.done(self.prefix + name):
            write_atomic(self.folder / (self.prefix + name), write)

    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """Compute a table and write it as Parquet, unless it is done already; `plain` as for `write_table`."""
        self.file(name, partial(write_table, make, plain))

    def prefixed(self, prefix: str) -> Work:
        """Return the same work, whose files have names with one more prefix."""
        return replace(self, prefix=self.prefix + prefix)

    def subfolder(self, name: str) -> Work:
        """Return the work on a folder inside this one, for files that are needed only to build the artefact."""
        return Work(self.folder / name, self.metadata, self.provenance)

    def entries(self) -> dict[str, FileEntry]:
        """Return hash and size of the files of the artefact, by name."""
        paths = {name: self.folder / name for name in self.names() if name not in self.excluded}
        return {name: FileEntry(sha256_file(path), path.stat().st_size) for name, path in paths.items()}

    def names(self) -> list[str]:
        """Return the names of all complete files, also in subfolders (`fold-0/config.json`), sorted.

        Names that begin with a dot are scratch: temporary files, checkpoints, spilled rows. A subfolder may hold a copy
        of another artefact with its manifest.
        """
        paths = [path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file()]
        return sorted(p.as_posix() for p in paths if p != Path(MANIFEST) and not any(n[0] == "." for n in p.parts))


def write_table(make: Callable[[], pa.Table], plain: bool, path: Path) -> None:
    """Compute a table and write it as Parquet.

    `plain`: whether to write without compression (see `write_plain`), as for vectors, which hardly shrink.
    """
    table = make()
    if plain:
        write_plain(path, [table], table.schema)
    else:
        pq.write_table(table, path, compression="zstd")


def part_name(index: int, count: int) -> str:
    """Return the name of a shard."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def part_ranges(rows: range, rows_per_shard: int) -> list[range]:
    """Cut a range of rows into shards of fixed size. The last one may be smaller."""
    return [range(a, min(a + rows_per_shard, rows.stop)) for a in range(rows.start, rows.stop, rows_per_shard)]


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
"""Steps in order, each requested when the one before it is complete. After the last one, the generator sets the
metadata of the work folder, and the names of files that are not part of the artefact, in the main process alone."""


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
