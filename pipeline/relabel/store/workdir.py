"""Work folders, where an artefact is built file by file. A finished file is not made again."""

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
from relabel.store.manifest import MANIFEST, FileEntry, Manifest

DONE = ".done"
"""Name of the folder of records inside the work folder."""
GITIGNORE = ".gitignore"
"""Name of a file that DVC writes beside artefacts."""
WRITTEN = re.compile(
    r"part-\d{5,}-of-\d{5,}\.parquet|word2vec\..+\d+d\.txt|(sts|sits)-.+\.parquet|out_of_fold\.parquet|training\.json"
)
"""Names of files that only relabel writes. A folder that holds one had a manifest."""
_PART = re.compile(r"part-\d{5,}-of-(?P<count>\d{5,})\.parquet")


@dataclass
class Work:
    """A folder in which an artefact is built. A small record, written last, commits each file.

    Attributes
    ----------
    folder : Path
    facts, runtime : dict
        Entries of the manifest to write.
    previous : mapping
        Facts of a finished artefact with the same fingerprint and damaged files, else empty.
    excluded : set of str
        Names of committed files that are not part of the artefact. They are removed after the manifest is written.
        Facts computed from them therefore survive a kill: either these files or the manifest exist.
    manifest : Manifest or None
        Manifest of an artefact that is copied, which is kept as it is.

    Examples
    --------
    >>> from pathlib import Path
    >>> work = Work(Path("work"))
    >>> work.file("a.txt", lambda path: path.write_text("a dog"))
    >>> work.done("a.txt"), work.entries()["a.txt"].bytes
    (True, 5)
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    previous: Mapping[str, Any] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    manifest: Manifest | None = None
    # Names of files that this object has written or verified, so that none is hashed twice.
    _verified: set[str] = field(default_factory=set, init=False, repr=False)

    def done(self, name: str) -> bool:
        """Return whether a file exists as recorded. The record of a damaged file is removed."""
        path, entry = self.folder / name, self._entry(name)
        self._check_count(name)
        same_size = entry is not None and path.is_file() and path.stat().st_size == entry.bytes
        if entry is not None and same_size and (name in self._verified or sha256_file(path) == entry.sha256):
            self._verified.add(name)
            return True
        self._record(name).unlink(missing_ok=True)
        return False

    def file(self, name: str, write: Callable[[Path], object], rows: int | None = None) -> None:
        """Write a file and commit it, unless it is done already.

        Parameters
        ----------
        name : str
        write : callable
            Takes the path to fill. Called only if the file is not done.
        rows : int, optional
            Number of rows, for the manifest.

        Raises
        ------
        CheckError
            If the file is a shard and the folder has shards of another shard count.
        """
        if self.done(name):
            return
        sha256, size = write_hashed(self.folder / name, write)
        # The record comes last: a file without it counts as not written.
        write_text(self._record(name), FileEntry(sha256, size, rows).to_json())
        self._verified.add(name)

    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """Compute a table and write it as Parquet, unless it is done already.

        Parameters
        ----------
        name : str
        make : callable
            Returns the table. Called only if the file is not done.
        plain : bool
            Whether to write without compression (see `write_plain`), as for vectors, which hardly shrink.
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
        """Compute and write shard `index` of `count` (see `table`)."""
        self.table(part_name(index, count), make)

    def drop(self, name: str) -> None:
        """Remove a file and its record, so that it is made again."""
        # The record goes first, so that a kill in between leaves a file that counts as not written.
        self._verified.discard(name)
        self._record(name).unlink(missing_ok=True)
        (self.folder / name).unlink(missing_ok=True)

    def register_existing(self, entries: Mapping[str, FileEntry]) -> None:
        """Commit the files that match their entries in a manifest."""
        for name, entry in entries.items():
            path = self.folder / name
            if path.is_file() and path.stat().st_size == entry.bytes and sha256_file(path) == entry.sha256:
                write_text(self._record(name), entry.to_json())
                self._verified.add(name)

    def subfolder(self, name: str) -> SubfolderWork:
        """Return the work on a folder inside this one, for files that are needed only to build the artefact."""
        return SubfolderWork(self.folder / name, self.facts, self.runtime, outer=self, name=name)

    def entries(self) -> dict[str, FileEntry]:
        """Return all committed files, including files in subfolders (`fold-0/config.json`)."""
        records = self.folder / DONE
        names = sorted(r.relative_to(records).as_posix().removesuffix(".json") for r in records.rglob("*.json"))
        entries = {name: self._entry(name) for name in names if (self.folder / name).exists()}
        return {name: entry for name, entry in entries.items() if entry is not None}

    def _entry(self, name: str) -> FileEntry | None:
        """Return the record of a file, or None if it is missing or damaged."""
        try:
            return FileEntry(**json.loads(self._record(name).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _check_count(self, name: str) -> None:
        """Raise if the folder holds shards of another shard count; it cannot belong to this fingerprint."""
        part = _PART.fullmatch(name)
        if part is None or name in self._verified:
            return
        for record in (self.folder / DONE).glob("part-*.json"):
            other = _PART.fullmatch(record.name.removesuffix(".json"))
            if other is not None and other["count"] != part["count"]:
                present = record.name.removesuffix(".json")
                todo = "Delete the folder and run again."
                raise CheckError(f"expected shards like {name}, found {present}", where=str(self.folder), todo=todo)

    def _record(self, name: str) -> Path:
        return self.folder / DONE / f"{name}.json"


@dataclass
class SubfolderWork(Work):
    """Work on a folder inside another work folder. The outer work records file `f` as ``name/f``."""

    outer: Work | None = None
    name: str = ""

    def _record(self, name: str) -> Path:
        assert self.outer is not None
        return self.outer._record(f"{self.name}/{name}")


def part_name(index: int, count: int) -> str:
    """Return the name of a shard.

    Examples
    --------
    >>> part_name(0, 13)
    'part-00000-of-00013.parquet'
    """
    return f"part-{index:05d}-of-{count:05d}.parquet"


def part_ranges(rows: range, rows_per_shard: int) -> list[range]:
    """Cut a range of rows into shards of fixed size. The last one may be smaller.

    Examples
    --------
    >>> part_ranges(range(0, 5), 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(a, min(a + rows_per_shard, rows.stop)) for a in range(rows.start, rows.stop, rows_per_shard)]


def unexpected_files(folder: Path, files: Collection[str]) -> Iterator[Path]:
    """Yield the paths in an artefact's folder that are not its files, sorted.

    A folder without any file of the artefact is yielded once, for everything in it.
    """
    expected = {MANIFEST, *files}
    inside = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}

    def walk(part: Path) -> Iterator[Path]:
        for path in sorted(part.iterdir()):
            name = path.relative_to(folder).as_posix()
            if path.is_dir() and name in inside:
                yield from walk(path)
            elif name not in expected and name != DONE:
                yield path

    return walk(folder)


def foreign_files(folder: Path, files: Collection[str]) -> Iterator[Path]:
    """Yield the unexpected files of an artefact's folder that neither relabel nor DVC wrote."""
    return (path for path in unexpected_files(folder, files) if path.name != GITIGNORE and not is_temporary(path.name))
