"""The folder where an artefact grows, file by file; a file that is done is not made again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import CheckError
from relabel.store.atomic import is_temporary, sha256_file, write_hashed, write_text
from relabel.store.fixed_parquet import write_plain
from relabel.store.manifest import MANIFEST, FileEntry

DONE = ".done"
"""Folder of the records, within the work folder."""
GITIGNORE = ".gitignore"
"""File that DVC lays beside artefacts."""
WRITTEN = re.compile(
    r"part-\d{5,}-of-\d{5,}\.parquet|word2vec\..+\d+d\.txt|(sts|sits)-.+\.parquet|out_of_fold\.parquet|training\.json"
)
"""Names of files that nothing but relabel writes, so that a folder that holds one had a manifest."""
_PART = re.compile(r"part-\d{5,}-of-(?P<count>\d{5,})\.parquet")


@dataclass
class Work:
    """The folder where an artefact grows. Each file is committed by a small record beside it, written last.

    Attributes
    ----------
    folder : Path
    facts, runtime : dict
        Entries of the manifest that is to be written.
    previous : mapping
        Facts of the manifest of the same fingerprint, if files of a finished artefact are damaged; else empty.
    excluded : set of str
        Names of committed files that are no part of the artefact. They are removed after its manifest is written, so
        that facts that are computed from them outlive a kill: either these files or the manifest are there.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    previous: Mapping[str, Any] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    _whole: set[str] = field(default_factory=set, init=False, repr=False)  # files read back, or written, by this object

    def done(self, name: str) -> bool:
        """Say whether a file is there, whole and as recorded; a damaged one is dropped."""
        path, entry = self.folder / name, self._entry(name)
        self._same_count(name)
        there = entry is not None and path.is_file() and path.stat().st_size == entry.bytes
        if entry is not None and there and (name in self._whole or sha256_file(path) == entry.sha256):
            self._whole.add(name)
            return True
        self._record(name).unlink(missing_ok=True)
        return False

    def file(self, name: str, write: Callable[[Path], object], rows: int | None = None) -> None:
        """Have `write` make a file, unless it is already done.

        Raises
        ------
        CheckError
            If it is a shard, and the folder has shards of another count.
        """
        if self.done(name):
            return
        sha256, size = write_hashed(self.folder / name, write)
        write_text(self._record(name), json.dumps(FileEntry(sha256, size, rows).__dict__))
        self._whole.add(name)

    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """Have `make` compute a table and write it as Parquet, unless it is already done.

        Compressed; or plain (see `write_plain`), for vectors, which hardly shrink.
        """
        if self.done(name):
            return
        table = make()

        def write(path: Path) -> None:
            if plain:
                write_plain(path, [table], table.schema)
            else:
                pq.write_table(table, path, compression="zstd")

        self.file(name, write, rows=table.num_rows)

    def part(self, index: int, count: int, make: Callable[[], pa.Table]) -> None:
        """Write shard `index` of `count` (see `table`)."""
        self.table(part_name(index, count), make)

    def drop(self, name: str) -> None:
        """Remove a file, so that it is made again."""
        self._whole.discard(name)
        self._record(name).unlink(missing_ok=True)
        (self.folder / name).unlink(missing_ok=True)

    def register_existing(self, entries: Mapping[str, FileEntry]) -> None:
        """Commit those files of a manifest that are as it says."""
        for name, entry in entries.items():
            path = self.folder / name
            if path.is_file() and path.stat().st_size == entry.bytes and sha256_file(path) == entry.sha256:
                write_text(self._record(name), json.dumps(entry.__dict__))
                self._whole.add(name)

    def subfolder(self, name: str) -> SubfolderWork:
        """Return the work on a folder inside this one, for files that only the way to the artefact needs."""
        return SubfolderWork(self.folder / name, self.facts, self.runtime, outer=self, name=name)

    def entries(self) -> dict[str, FileEntry]:
        """Every committed file, those in folders of their own (`fold-0/config.json`) too."""
        records = self.folder / DONE
        names = sorted(r.relative_to(records).as_posix().removesuffix(".json") for r in records.rglob("*.json"))
        found = {name: self._entry(name) for name in names if (self.folder / name).exists()}
        return {name: entry for name, entry in found.items() if entry is not None}

    def _entry(self, name: str) -> FileEntry | None:
        """Read a record; None if there is none, or it is damaged."""
        try:
            return FileEntry(**json.loads(self._record(name).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _same_count(self, name: str) -> None:
        """Refuse a shard of another count: a folder's name is its fingerprint's, so this is no work of ours."""
        part = _PART.fullmatch(name)
        if part is None or name in self._whole:
            return
        for record in (self.folder / DONE).glob("part-*.json"):
            other = _PART.fullmatch(record.name.removesuffix(".json"))
            if other is not None and other["count"] != part["count"]:
                found = record.name.removesuffix(".json")
                todo = "Delete the folder and run again."
                raise CheckError(f"asked for {name}, found {found}", where=str(self.folder), todo=todo)

    def _record(self, name: str) -> Path:
        return self.folder / DONE / f"{name}.json"


@dataclass
class SubfolderWork(Work):
    """Work on the files of a folder inside another; the outer work knows file `f` as ``name/f``."""

    outer: Work | None = None
    name: str = ""

    def _record(self, name: str) -> Path:
        assert self.outer is not None
        return self.outer._record(f"{self.name}/{name}")


def part_name(index: int, count: int) -> str:
    """Name of a shard: `part-00000-of-00013.parquet`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def part_ranges(rows: range, rows_per_shard: int) -> list[range]:
    """Cut a range of rows into shards of fixed size; the last may be shorter."""
    return [range(a, min(a + rows_per_shard, rows.stop)) for a in range(rows.start, rows.stop, rows_per_shard)]


def unexpected_files(folder: Path, files: Collection[str]) -> Iterator[Path]:
    """List files and folders of an artefact's folder that hold none of its files, sorted; a folder for all it holds."""
    known = {MANIFEST, *files}
    inside = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}

    def walk(part: Path) -> Iterator[Path]:
        for path in sorted(part.iterdir()):
            name = path.relative_to(folder).as_posix()
            if path.is_dir() and name in inside:
                yield from walk(path)
            elif name not in known and name != DONE:
                yield path

    return walk(folder)


def foreign(folder: Path, files: Collection[str]) -> Iterator[Path]:
    """List the unexpected files of an artefact's folder that neither relabel nor DVC left there."""
    return (path for path in unexpected_files(folder, files) if path.name != GITIGNORE and not is_temporary(path.name))
