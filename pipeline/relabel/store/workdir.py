"""Work folders, in which an artefact is built file by file, and the steps and tasks of this work.

A file is written under a temporary name, synced and renamed. If it exists, it is complete, so a resumed run only writes
the missing files.

A task writes one file, can run in any process, and is independent of the other tasks of its step. A step starts when
the previous step is complete, so its tasks can read the files of earlier steps.
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
    """A folder in which an artefact is built.

    `metadata`, `provenance`: entries of the manifest.
    `excluded`: names of files that are not part of the artefact. They are removed only after the manifest is written,
        because metadata may be computed from them.
    `prefix`: prefix of the names of all files that `file` writes.
    """

    folder: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    prefix: str = ""

    def warn(self, *texts: str) -> None:
        """Add warnings to the metadata, as early as possible: before the step that they concern."""
        self.metadata.setdefault("warnings", []).extend(texts)

    def done(self, name: str) -> bool:
        """Return whether a file exists and is therefore complete."""
        return (self.folder / name).exists()

    def file(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file unless it exists. `write`: writes to the given path."""
        if not self.done(self.prefix + name):
            write_atomic(self.folder / (self.prefix + name), write)

    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """Compute a table and write it as Parquet unless it exists. `plain`: as for `write_table`."""
        self.file(name, partial(write_table, make, plain))

    def prefixed(self, prefix: str) -> Work:
        """Return the same work with `prefix` added to the names of files."""
        return replace(self, prefix=self.prefix + prefix)

    def subfolder(self, name: str) -> Work:
        """Return the work in a subfolder, for files that are only needed to build the artefact."""
        return Work(self.folder / name, self.metadata, self.provenance)

    def entries(self) -> dict[str, FileEntry]:
        """Return the hash and size of each file of the artefact by name."""
        paths = {name: self.folder / name for name in self.names() if name not in self.excluded}
        return {name: FileEntry(sha256_file(path), path.stat().st_size) for name, path in paths.items()}

    def names(self) -> list[str]:
        """Return the sorted names of all complete files, including those in subfolders (`fold-0/config.json`).

        Names that begin with a dot are scratch: temporary files, checkpoints, spilled rows. A subfolder may hold a copy
        of another artefact with its manifest.
        """
        paths = [path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file()]
        return sorted(p.as_posix() for p in paths if p != Path(MANIFEST) and not any(n[0] == "." for n in p.parts))


def write_table(make: Callable[[], pa.Table], plain: bool, path: Path) -> None:
    """Compute a table and write it as Parquet.

    `plain`: whether to write without compression (see `write_plain`), for example vectors, which hardly compress.
    """
    table = make()
    if plain:
        write_plain(path, [table], table.schema)
    else:
        pq.write_table(table, path, compression="zstd")


def part_name(index: int, count: int) -> str:
    """Return the file name of a shard."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def part_ranges(rows: range, rows_per_shard: int) -> list[range]:
    """Split a range of rows into shards of fixed size. The last one may be smaller."""
    return [range(a, min(a + rows_per_shard, rows.stop)) for a in range(rows.start, rows.stop, rows_per_shard)]


@dataclass(frozen=True)
class Task:
    """The work of writing one file.

    `write`: writes to the given path. The bytes depend only on parameters, inputs and earlier steps.
    `size`: amount of work, in the unit of the step. `write` may report progress with `Progress.advance`.
    """

    file: str
    write: Callable[[Path], object]
    size: int = 1


@dataclass(frozen=True)
class Step:
    """Tasks that do not depend on each other.

    `title`, `unit`: title of the progress bar, and unit of the sizes ("captions").
    `last`: True if this is the last step.
    """

    title: str
    unit: str
    tasks: Sequence[Task]
    last: bool = False

    @property
    def size(self) -> int:
        """Total size of all tasks."""
        return sum(task.size for task in self.tasks)

    def missing(self, work: Work) -> list[Task]:
        """Return the tasks with missing files."""
        return [task for task in self.tasks if not work.done(task.file)]


Steps = Iterator[Step]
"""Steps in order. Each one is requested when the previous one is complete. After the last one, the generator sets
`metadata` and `excluded` of the work, only in the main process."""


def table_task(file: str, make: Callable[[], pa.Table], size: int = 1, plain: bool = False) -> Task:
    """Return the task of writing a Parquet file. `plain`: as for `write_table`."""
    return Task(file, partial(write_table, make, plain), size)


def make_step(step: Step, work: Work, progress: Progress) -> None:
    """Write the missing files of a step in this process."""
    with progress.bar(step.title, step.size, step.unit) as bar:
        done = 0
        for task in step.tasks:
            work.file(task.file, task.write)
            done += task.size
            # Complete the bar for files that existed and for work that a task did not report.
            bar.reach(done)
