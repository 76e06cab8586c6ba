"""What `manifest.json` says of an artefact, and reading an artefact against it.

The manifest holds a digest of itself and is read only in the one form in which it is written, so that a change of any
byte of it is found, as the manifest finds a change of any byte of the files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import CheckError, MissingError
from relabel.core.layout import check_name
from relabel.store.atomic import sha256_file

FORMAT = 2
MANIFEST = "manifest.json"
MODELS = frozenset({"word_vectors", "sentence_encoder", "fuse_model", "cross_encoder"})
"""Kinds of models, whose name is a description and whose folder is the user's choice."""


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

    @property
    def failed(self) -> int:
        """How many rows could not be encoded (see relabel.sources.shards); an artefact with any is made again."""
        return int(self.facts.get("failed", {}).get("rows", 0))

    @property
    def identity(self) -> str:
        """What an artefact made from this one names as its input: the fingerprint, and which rows failed."""
        return f"{self.fingerprint} without {self.facts['failed']['sha256']}" if self.failed else self.fingerprint

    def to_json(self) -> str:
        """Stable, readable JSON, with the digest of all the rest."""
        body = {**self.__dict__, "files": {n: e.__dict__ for n, e in self.files.items()}}
        body = json.loads(json.dumps(body, allow_nan=False))  # as a reader gets it: keys are text, and sorted as such
        return _text(body | {"digest": hashlib.sha256(_text(body).encode()).hexdigest()})


def _text(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def fingerprint(kind: str, semantic: dict[str, Any], inputs: dict[str, str]) -> str:
    """Hash of everything that can change a value, format version included."""
    body = {"format": FORMAT, "kind": kind, "semantic": semantic, "inputs": inputs}
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ArtefactSpec:
    """What is known of an artefact before it is built; see Manifest.

    Raises
    ------
    UsageError
        If the name cannot be a folder's. A model's name describes the model and may be any text.
    """

    kind: str
    name: str
    semantic: dict[str, Any]
    inputs: dict[str, str]

    def __post_init__(self) -> None:
        if self.kind not in MODELS:
            check_name(self.kind, self.name)

    @property
    def fingerprint(self) -> str:
        """See `fingerprint`."""
        return fingerprint(self.kind, self.semantic, self.inputs)


def read_manifest(folder: Path, kind: str | None = None) -> Manifest:
    """Read a manifest; of any kind if none is given.

    Raises
    ------
    MissingError
        If there is none.
    CheckError
        If it is of another kind or format, names files outside its folder, or is not, to the byte, what was written.
    """
    path, todo = folder / MANIFEST, "Delete the folder and run again."
    try:
        text = path.read_bytes().decode()
        body = json.loads(text)
        if body["format"] != FORMAT:
            raise CheckError(f"expected format {FORMAT}, found format {body['format']}", where=str(path), todo=todo)
        said = body.pop("digest")
        manifest = Manifest(**body | {"files": {n: FileEntry(**e) for n, e in body["files"].items()}})
        found = hashlib.sha256(_text(body).encode()).hexdigest()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(
            f"no {kind or 'artefact'} here", where=str(folder), todo=f"Make it with `relabel {verb_of(kind)}`."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckError(f"not a manifest ({error})", where=str(path), todo=todo) from error
    if said != found:
        raise CheckError(f"expected digest {said}, found {found}", where=str(path), todo=todo)
    if text != manifest.to_json():
        raise CheckError("not in the form in which manifests are written", where=str(path), todo=todo)
    for name in manifest.files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise CheckError(f"names a file outside its folder: {name!r}", where=str(path), todo=todo)
    if kind not in (None, manifest.kind):
        raise CheckError(f"expected {kind}, found {manifest.kind}", where=str(path))
    return manifest


def verb_of(kind: str | None) -> str:
    """Name the verb that makes a kind of artefact."""
    return VERBS.get(kind or "", "run")


VERBS: dict[str, str] = {
    "corpus": "ingest",
    "word_vectors": "tune cbow",
    "sentence_encoder": "tune sbert",
    "fuse_model": "tune fuse",
    "cross_encoder": "tune bert_sts",
    "encoding": "encode",
    "neighbours": "neighbours",
    "judgement": "judge",
    "report": "correlate",
    "lookup": "export lookup",
    "plan": "export plan",
}
"""Kind of artefact to the verb that makes it."""


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
