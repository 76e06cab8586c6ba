"""Work folders, in which an artefact grows file by file.

A file is written under a temporary name, made durable and renamed. It has its name only if it is complete, so its
existence is the record that it is done: a later run makes the files that are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.store.files import sha256_file, write_atomic, write_plain
from relabel.store.manifest import MANIFEST, FileEntry


@dataclass
class Work:
    """A folder in which an artefact grows.

    `facts`, `runtime`: entries of the manifest to write.
    `excluded`: names of files that are not part of the artefact. They are removed after the manifest is written, so
        facts that were computed from them survive a kill.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)

    def done(self, name: str) -> bool:
        """Return whether a file is complete."""
        return (self.folder / name).exists()

    def file(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file, unless it is done already. `write` takes the path to fill."""
        if not self.done(name):
            write_atomic(self.folder / name, write)

    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """Compute a table and write it as Parquet, unless it is done already; `plain` as for `write_table`."""
        self.file(name, partial(write_table, make, plain))

    def subfolder(self, name: str) -> Work:
        """Return the work on a folder inside this one, for files that are needed only to build the artefact."""
        return Work(self.folder / name, self.facts, self.runtime)

    def entries(self) -> dict[str, FileEntry]:
        """Return hash and size of the files of the artefact, by name."""
        paths = {name: self.folder / name for name in self.names() if name not in self.excluded}
        return {name: FileEntry(sha256_file(path), path.stat().st_size) for name, path in paths.items()}

    def names(self) -> list[str]:
        """Return the names of all complete files, also in subfolders (`fold-0/config.json`), sorted.

        Names that begin with a dot are scratch: temporary files, checkpoints, spilled rows.
        """
        paths = [path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file()]
        return sorted(p.as_posix() for p in paths if p.name != MANIFEST and not any(n[0] == "." for n in p.parts))


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
