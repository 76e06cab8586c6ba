"""The manifest of an artefact, `manifest.json`: its identity and metadata, and the hash of each file.

The manifest includes a digest of its content, to detect changes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError, system_error
from relabel_train.files import check_name, read_file, sha256_file

MANIFEST = "manifest.json"
VERSIONS = Path(__file__).parents[1] / "versions.yaml"
"""Versions of formats and sources."""
MODELS = frozenset({"word_vectors", "sentence_encoder", "int8_encoder", "fuse_model", "cross_encoder"})
"""Kinds of artefacts that are models. Their name is a description, and the user chooses their folder."""


def version_of(kind: str, source: str | None = None) -> int | None:
    """Return the version of a kind of artefact, or of the encodings of a source; None if it has no version."""
    version = _versions().get(kind)
    return version.get(source) if isinstance(version, dict) else version


@cache
def _versions() -> dict[str, Any]:
    return dict(yaml.safe_load(VERSIONS.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class FileEntry:
    """Hash and size of one file of an artefact."""

    sha256: str
    bytes: int

    def __str__(self) -> str:
        return f"sha256 {self.sha256} ({self.bytes} bytes)"


@dataclass(frozen=True)
class Manifest:
    """Content of `manifest.json`.

    `kind`, `name`: kind of the artefact (`corpus`, `encoding`, `scores`, ...), and the name of its label or dataset.
    `fingerprint`: sha256 of versions, kind, config and inputs: everything that can change a value.
    `config`, `inputs`: parameters that can change a value; sha256 or fingerprint of every input.
    `metadata`: metadata for readers: range, pooling, orientation, symmetric, rows, width, counts.
    `provenance`: device, threads, seconds and library versions. Not part of the fingerprint.
    """

    kind: str
    name: str
    fingerprint: str
    config: dict[str, Any]
    inputs: dict[str, str]
    metadata: dict[str, Any]
    provenance: dict[str, Any]
    files: dict[str, FileEntry]
    format: int | None = field(default_factory=lambda: version_of("manifest"))

    @property
    def parts(self) -> list[str]:
        """Names of the shards, in row order."""
        return sorted(n for n in self.files if n.startswith("part-"))

    @property
    def bytes(self) -> int:
        """Total size of all files in bytes."""
        return sum(entry.bytes for entry in self.files.values())

    @property
    def failed(self) -> int:
        """Number of rows that could not be encoded (see relabel.sources.shards)."""
        return int(self.metadata.get("failed", {}).get("rows", 0))

    @property
    def warnings(self) -> list[str]:
        """Warnings about the artefact for users, such as truncated captions."""
        return list(self.metadata.get("warnings", ()))

    @property
    def identity(self) -> str:
        """Identity of the artefact as an input of other artefacts: fingerprint and digest of the failed rows."""
        return f"{self.fingerprint} without {self.metadata['failed']['sha256']}" if self.failed else self.fingerprint

    @property
    def is_current(self) -> bool:
        """True if the fingerprint is the same in this version of relabel."""
        return self.fingerprint == Spec(self.kind, self.name, self.config, self.inputs).fingerprint

    def to_json(self) -> str:
        """Return indented JSON with sorted keys and a digest of all other fields."""
        body = {**self.__dict__, "files": {n: e.__dict__ for n, e in self.files.items()}}
        # A round trip converts keys to text, so writers and readers sort them alike.
        body = json.loads(json.dumps(body, allow_nan=False))
        return _text(body | {"digest": hashlib.sha256(_text(body).encode()).hexdigest()})


def _text(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Spec:
    """Specification of an artefact before it is built: the first fields of its `Manifest`."""

    kind: str
    name: str
    config: dict[str, Any]
    inputs: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """Hash of everything that can change a value, with the versions of the manifest and of the kind or source.

        The name is not included.
        """
        versions = [version_of("manifest"), version_of(self.kind, self.config.get("source"))]
        body = {"versions": versions, "kind": self.kind, "config": self.config, "inputs": self.inputs}
        text = json.dumps(body, sort_keys=True, ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(folder: Path, kind: str | None = None) -> Manifest:
    """Read the manifest of a folder.

    `kind`: required kind. Any kind is accepted by default.
    """
    path = folder / MANIFEST
    try:
        body = read_file(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(f"no {kind or 'artefact'} here", where=str(folder), hint="Build it first.") from error
    except OSError as error:
        raise system_error(error, path) from error
    manifest = _parse(body, str(path))
    if kind not in (None, manifest.kind):
        raise CheckError(f"expected {kind}, found {manifest.kind}", where=str(path))
    return manifest


# Cached, because a command opens the same few artefacts many times.
@lru_cache(maxsize=1024)
def _parse(content: bytes, where: str) -> Manifest:
    hint = "Delete the folder and run again."
    try:
        text = content.decode()
        body = json.loads(text)
        # Checked first, because other formats may have other fields.
        if body["format"] != (expected := version_of("manifest")):
            raise CheckError(f"expected format {expected}, found format {body['format']}", where=where, hint=hint)
        body.pop("digest")
        manifest = Manifest(**body | {"files": {check_name(n): FileEntry(**e) for n, e in body["files"].items()}})
        # The text includes a digest of the values, so it differs after any change.
        as_written = text == manifest.to_json()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckError(f"not a manifest ({error})", where=where, hint=hint) from error
    if not as_written:
        raise CheckError("the manifest was changed after it was written", where=where, hint=hint)
    return manifest


def open_artefact(folder: Path, kind: str, command: str = "again", content: bool = False) -> Manifest:
    """Read the manifest of an artefact; raise if a file is missing or has a different size.

    `command`: command that builds the artefact, for messages. `content`: whether to compare the sha256 of every file.
    """
    manifest, hint = read_manifest(folder, kind), f"Delete the folder and run {command}."
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.exists() or path.stat().st_size != entry.bytes:
            raise CheckError(f"{name} is missing or does not have {entry.bytes} bytes", where=str(folder), hint=hint)
        if content and sha256_file(path) != entry.sha256:
            raise CheckError(f"{name} was changed after it was written", where=str(folder), hint=hint)
    return manifest


def read_parts(folder: Path, manifest: Manifest, columns: list[str] | None = None) -> pa.Table:
    """Read all shards of an artefact as one table in row order."""
    return pa.concat_tables([read_columns(folder / name, columns) for name in manifest.parts])


def read_columns(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file or some of its columns."""
    # Not `read_table`: it imports pyarrow.dataset and pandas, and this takes as long as reading COCO's captions.
    with pq.ParquetFile(path) as file:
        return file.read(columns)


def view_column(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return a numeric column without nulls as a read-only array; several chunks are copied into one."""
    # Not `to_numpy`: it imports pandas, and this takes as long as opening the encodings of COCO's test split.
    return np.from_dlpack(combine_chunks(column))


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it has one chunk."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
