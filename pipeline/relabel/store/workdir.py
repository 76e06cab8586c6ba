"""Work folders, where an artefact is built file by file, and checks of the folder that the artefact moves to.

A finished file is not made again. An artefact may replace only an older one of the same kind and name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import CheckError, UsageError, system_error
from relabel.store.files import is_temporary, sha256_file, write_hashed, write_plain, write_text
from relabel.store.manifest import MANIFEST, MODELS, ArtefactSpec, FileEntry, read_manifest

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

    `facts`, `runtime`: entries of the manifest to write.
    `excluded`: names of committed files that are not part of the artefact. They are removed after the manifest is
        written. Facts computed from them therefore survive a kill: either these files or the manifest exist.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
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

        `write`: takes the path to fill. Called only if the file is not done. `rows`: number of rows, for the manifest.
        """
        if self.done(name):
            return
        sha256, size = write_hashed(self.folder / name, write)
        # The record comes last: a file without it counts as not written.
        write_text(self._record(name), FileEntry(sha256, size, rows).to_json())
        self._verified.add(name)

    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """Compute a table and write it as Parquet, unless it is done already.

        `make`: returns the table. Called only if the file is not done. `plain`: whether to write without compression
        (see `write_plain`), as for vectors, which hardly shrink.
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
    """Return the name of a shard."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def part_ranges(rows: range, rows_per_shard: int) -> list[range]:
    """Cut a range of rows into shards of fixed size. The last one may be smaller."""
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


_MOVE_AWAY = "Choose another name or folder, or move this one away."
_DELETE = "Delete the folder or move it away, and run again."


def check_kind(out: Path, kind: str) -> None:
    """Raise if a folder holds anything but an artefact of a kind. For use before the spec is known."""
    _check(out, kind, None, None)


def check_place(out: Path, artefact: ArtefactSpec, files: Collection[str] = ()) -> None:
    """Raise if a folder holds anything but an older artefact of the same kind and name.

    The name of a model is not compared: it describes how the model was made, and the folder is the user's choice.

    `out`: folder of the artefact. `artefact`: the new artefact. `files`: names of the files of the new artefact, if
    they are known.
    """
    _check(out, artefact.kind, None if artefact.kind in MODELS else artefact.name, files)


def _check(out: Path, kind: str, name: str | None, files: Collection[str] | None) -> None:
    if out.name in ("", ".."):
        raise UsageError(f"{str(out)!r} cannot be the folder of an artefact", todo="Give the folder a name of its own.")
    try:
        _check_folder(out, kind, name, files)
    except OSError as error:
        raise system_error(error, out) from error


def _check_folder(out: Path, kind: str, name: str | None, files: Collection[str] | None) -> None:
    try:
        out.lstat()
    except FileNotFoundError:
        return
    if not out.is_dir():
        message = "found a link to a folder that does not exist" if out.is_symlink() else "found a file, not a folder"
        raise CheckError(message, where=str(out), todo=_MOVE_AWAY)
    content = sorted(os.listdir(out))  # noqa: PTH208
    if not content:
        return
    # Without a manifest nobody knows which artefact this was, even if relabel wrote it.
    written = [name for name in content if WRITTEN.fullmatch(name)]
    if MANIFEST not in content and written:
        message = f"found files of an artefact without its manifest ({written[0]})"
        raise CheckError(message, where=str(out), todo=_DELETE)
    if MANIFEST not in content:
        raise CheckError(f"found files that relabel did not write ({content[0]})", where=str(out), todo=_MOVE_AWAY)
    try:
        manifest = read_manifest(out)
    except CheckError as error:
        message = f"found a manifest that cannot be read ({error.problem})"
        raise CheckError(message, where=str(out), todo=_DELETE) from error
    if manifest.kind != kind or name not in (None, manifest.name):
        raise CheckError(_describe_other(manifest.kind, manifest.name, kind, name), where=str(out), todo=_MOVE_AWAY)
    if files is not None:
        _check_unexpected_files(out, {*files, *manifest.files})


def _check_unexpected_files(out: Path, files: Collection[str]) -> None:
    for path in foreign_files(out, files):
        message = f"found {path.relative_to(out)}, which relabel did not write, in a folder that is to be replaced"
        raise CheckError(message, where=str(out), todo=f"Move {path} away, and run again.")


def _describe_other(kind: str, name: str, wanted: str, wanted_name: str | None) -> str:
    replaceable = wanted if wanted_name is None else f"{wanted} {wanted_name}"
    return f"found {kind} {name}, where only an older {replaceable} may be replaced"
