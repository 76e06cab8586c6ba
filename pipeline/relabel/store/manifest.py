"""What `manifest.json` says of an artefact, and reading an artefact against it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.errors import CheckError, MissingError
from relabel.store.atomic import sha256_file

FORMAT = 1
MANIFEST = "manifest.json"


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


_VERB = {"corpus": "ingest", "encoding": "encode", "neighbours": "neighbours", "judgement": "judge"}


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
