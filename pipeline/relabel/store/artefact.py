"""An artefact: a folder of files with a manifest, built in a work folder and moved into place when whole.

The work folder lies beside the artefact (same file system) under a name made from the fingerprint, so work is
never resumed under other inputs or parameters, and a tool that deletes the artefact first (DVC does) deletes no work.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.errors import CheckError, MissingError, PartialError
from relabel.store.atomic import sha256_file, sync_folder, void, write_atomic, write_text

FORMAT = 1
MANIFEST = "manifest.json"
_LIBRARIES = ("numpy", "pyarrow", "torch", "sentence-transformers", "faiss-cpu", "numba", "pycocoevalcap")


@dataclass(frozen=True)
class FileEntry:
    """What a manifest says of one file."""

    sha256: str
    bytes: int
    rows: int | None = None


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` holds.

    Attributes
    ----------
    kind, name : str
        `corpus`, `encoding`, `scores`, ...; and the label's or dataset's name.
    fingerprint : str
        sha256 over format, kind, semantic and inputs: everything that can change a value.
    semantic, inputs : dict
        Parameters that can change a value; sha256 or fingerprint of everything that went in.
    facts : dict
        What a reader needs to know: range, pooling, orientation, symmetric, rows, width, counts.
    runtime : dict
        Recorded, never hashed: device, threads, seconds, library versions.
    files : dict of str to FileEntry
    """

    kind: str
    name: str
    fingerprint: str
    semantic: dict[str, Any]
    inputs: dict[str, str]
    facts: dict[str, Any]
    runtime: dict[str, Any]
    files: dict[str, FileEntry]
    format: int = FORMAT

    @property
    def parts(self) -> list[str]:
        """Names of the shards, in order."""
        return sorted(n for n in self.files if n.startswith("part-"))

    def to_json(self) -> str:
        """Stable, readable JSON."""
        body = {**self.__dict__, "files": {n: e.__dict__ for n, e in sorted(self.files.items())}}
        return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def fingerprint(kind: str, semantic: dict[str, Any], inputs: dict[str, str]) -> str:
    """Hash of everything that can change a value, format version included."""
    body = {"format": FORMAT, "kind": kind, "semantic": semantic, "inputs": inputs}
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Draft:
    """What is known of an artefact before it is built; see Manifest."""

    kind: str
    name: str
    semantic: dict[str, Any]
    inputs: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """See `fingerprint`."""
        return fingerprint(self.kind, self.semantic, self.inputs)


@dataclass
class Work:
    """The folder where an artefact grows. Each file is committed by a small record beside it, written last."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)

    def done(self, name: str) -> bool:
        """Say whether a file is there, whole and as recorded; a damaged one is dropped."""
        record, path = self._record(name), self.folder / name
        if not record.exists():
            return False
        entry = FileEntry(**json.loads(record.read_text()))
        if path.exists() and path.stat().st_size == entry.bytes and sha256_file(path) == entry.sha256:
            return True
        record.unlink()
        return False

    def file(self, name: str, write: Callable[[Path], None], rows: int | None = None) -> None:
        """Have `write` make a file, unless it is already done."""
        if self.done(name):
            return
        path = self.folder / name
        write_atomic(path, write)
        entry = FileEntry(sha256_file(path), path.stat().st_size, rows)
        write_text(self._record(name), json.dumps(entry.__dict__))

    def table(self, name: str, make: Callable[[], pa.Table]) -> None:
        """Have `make` compute a table and write it as Parquet, unless it is already done."""
        if self.done(name):
            return
        table = make()
        self.file(name, lambda p: void(pq.write_table(table, p, compression="zstd")), rows=table.num_rows)

    def part(self, index: int, count: int, make: Callable[[], pa.Table]) -> None:
        """Write shard `index` of `count` (see `table`)."""
        self.table(part_name(index, count), make)

    def entries(self) -> dict[str, FileEntry]:
        """Every committed file."""
        records = sorted((self.folder / ".done").glob("*.json"))
        return {r.name.removesuffix(".json"): FileEntry(**json.loads(r.read_text())) for r in records}

    def _record(self, name: str) -> Path:
        return self.folder / ".done" / f"{name}.json"


def part_name(index: int, count: int) -> str:
    """Name of a shard: `part-00000-of-00013.parquet`."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def part_ranges(rows: range, rows_per_shard: int) -> list[range]:
    """Cut a range of rows into shards of fixed size; the last may be shorter."""
    return [range(a, min(a + rows_per_shard, rows.stop)) for a in range(rows.start, rows.stop, rows_per_shard)]


def build(out: Path, draft: Draft, fill: Callable[[Work], None]) -> tuple[Manifest, bool]:
    """Build an artefact, or find it already built.

    Parameters
    ----------
    out : Path
        The artefact's folder; replaced only once the new one is whole.
    draft : Draft
    fill : callable
        Writes the files through the Work it gets; resumable, since finished files are kept.

    Returns
    -------
    manifest : Manifest
    built : bool
        False if it was there already, under the same fingerprint and with unchanged files.

    Raises
    ------
    PartialError
        On a full disk; finished files are kept for the next run.
    """
    with _lock(out):
        current = _current(out, draft.fingerprint)
        if current is not None:
            return current, False
        work = Work(_work_folder(out, draft.fingerprint))
        started = time.monotonic()
        try:
            (work.folder / ".done").mkdir(parents=True, exist_ok=True)
            fill(work)
            manifest = _manifest(draft, work, time.monotonic() - started)
            write_text(work.folder / MANIFEST, manifest.to_json())
            _move(work.folder, out)
        except OSError as error:
            raise disk_error(error, out) from error
    return manifest, True


def is_current(out: Path, draft: Draft) -> bool:
    """Whether an artefact is there, whole, under the fingerprint of a draft."""
    return _current(out, draft.fingerprint) is not None


def disk_error(error: OSError, out: Path) -> PartialError:
    """What an operating system error means to a user."""
    what = f"could not write: {error.strerror or error}"
    return PartialError(
        what,
        where=str(error.filename or out),
        todo="Free some space and run it again; finished files are kept.",
    )


def read_manifest(folder: Path, kind: str) -> Manifest:
    """Read a manifest.

    Raises
    ------
    MissingError
        If there is none.
    CheckError
        If it is of another kind or format, or is not a manifest.
    """
    path = folder / MANIFEST
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        body["files"] = {n: FileEntry(**e) for n, e in body["files"].items()}
        manifest = Manifest(**body)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(
            f"no {kind} here", where=str(folder), todo=f"Make it with `relabel {_VERB.get(kind, 'run')}`."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckError(
            f"not a manifest ({error})", where=str(path), todo="Delete the folder and run again."
        ) from error
    if (manifest.kind, manifest.format) != (kind, FORMAT):
        found = f"{manifest.kind}, format {manifest.format}"
        raise CheckError(f"expected {kind}, format {FORMAT}; found {found}", where=str(path))
    return manifest


_VERB = {"corpus": "ingest", "encoding": "encode", "judgement": "judge"}


def open_artefact(folder: Path, kind: str, *, verify: bool = True) -> Manifest:
    """Read a manifest and check every file against it.

    Raises
    ------
    MissingError, CheckError
        As `read_manifest`; and CheckError naming the file, what was expected and what was found.
    """
    manifest = read_manifest(folder, kind)
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.exists():
            raise CheckError("the manifest names a file that is not there", where=str(path), todo="Run again.")
        size = path.stat().st_size
        if size != entry.bytes:
            raise CheckError(f"expected {entry.bytes} bytes, found {size}", where=str(path), todo="Run again.")
        if verify and (found := sha256_file(path)) != entry.sha256:
            raise CheckError(f"expected sha256 {entry.sha256}, found {found}", where=str(path), todo="Run again.")
    return manifest


def read_parts(folder: Path, manifest: Manifest, columns: list[str] | None = None) -> pa.Table:
    """Read all shards of an artefact as one table, in row order."""
    return pa.concat_tables([pq.read_table(folder / name, columns=columns) for name in manifest.parts])


def _current(out: Path, wanted: str) -> Manifest | None:
    try:
        kind = json.loads((out / MANIFEST).read_text(encoding="utf-8"))["kind"]
        manifest = open_artefact(out, kind)
    except (OSError, ValueError, KeyError, TypeError, MissingError, CheckError):
        return None
    if manifest.fingerprint != wanted:
        return None
    shutil.rmtree(out / ".done", ignore_errors=True)  # left by a run that was killed right after its last rename
    return manifest


def _work_folder(out: Path, wanted: str) -> Path:
    return out.parent / ".work" / f"{out.name}-{wanted[:16]}"


def _manifest(draft: Draft, work: Work, seconds: float) -> Manifest:
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    machine = {"python": platform.python_version(), "platform": platform.platform(), "cpus": os.cpu_count()}
    runtime = {**work.runtime, "seconds": round(seconds, 3), "libraries": versions, "machine": machine}
    return Manifest(
        draft.kind,
        draft.name,
        draft.fingerprint,
        draft.semantic,
        draft.inputs,
        work.facts,
        runtime,
        work.entries(),
    )


def _move(folder: Path, out: Path) -> None:
    old = folder.with_name(folder.name + ".old")
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    folder.rename(out)
    sync_folder(out.parent)
    shutil.rmtree(out / ".done", ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    from filelock import FileLock

    folder = out.parent / ".work"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, out) from error
    with FileLock(folder / f"{out.name}.lock"):
        yield
