"""The manifest of an artefact, `manifest.json`: what the artefact is, and the hash of each of its files.

It holds a digest of itself, so that a changed value in the manifest is found as well.
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
"""Kinds of models. The name of a model is a description, and its folder is the user's choice."""


def version_of(kind: str, source: str | None = None) -> int | None:
    """Return the version of a kind of artefact, or of the encodings of a source; None if the file has none."""
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

    `kind`, `name`: kind of the artefact (`corpus`, `encoding`, `scores`, ...) and the name of its label or dataset.
    `fingerprint`: sha256 over versions, kind, config and inputs: everything that can change a value.
    `config`, `inputs`: parameters that can change a value; sha256 or fingerprint of every input.
    `metadata`: metadata that a reader needs: range, pooling, orientation, symmetric, rows, width, counts.
    `provenance`: device, threads, seconds and library versions. Recorded, and never part of the fingerprint.
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
        """Size of all files."""
        return sum(entry.bytes for entry in self.files.values())

    @property
    def failed(self) -> int:
        """Number of rows that could not be encoded (see relabel.sources.shards). If any, the next run builds again."""
        return int(self.metadata.get("failed", {}).get("rows", 0))

    @property
    def warnings(self) -> list[str]:
        """What a user must know of the artefact, such as captions that are cut."""
        return list(self.metadata.get("warnings", ()))

    @property
    def identity(self) -> str:
        """Identity of this artefact as an input of another one: the fingerprint and the set of failed rows."""
        return f"{self.fingerprint} without {self.metadata['failed']['sha256']}" if self.failed else self.fingerprint

    @property
    def is_current(self) -> bool:
        """Whether this version of relabel would give the artefact the same fingerprint."""
        return self.fingerprint == Spec(self.kind, self.name, self.config, self.inputs).fingerprint

    def to_json(self) -> str:
        """Return readable JSON with stable order, including the digest of all other fields."""
        body = {**self.__dict__, "files": {n: e.__dict__ for n, e in self.files.items()}}
        # A round trip turns keys into text as a reader gets them, so that both sides sort them alike.
        body = json.loads(json.dumps(body, allow_nan=False))
        return _text(body | {"digest": hashlib.sha256(_text(body).encode()).hexdigest()})


def _text(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Spec:
    """Description of an artefact before it is built: the first fields of its `Manifest`."""

    kind: str
    name: str
    config: dict[str, Any]
    inputs: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """Hash of everything that can change a value, with the versions of the manifest and of the kind or source.

        The name is not part of it.
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
        raise MissingError(f"no {kind or 'artefact'} here", where=str(folder), todo="Build it first.") from error
    except OSError as error:
        raise system_error(error, path) from error
    manifest = _parse(body, str(path))
    if kind not in (None, manifest.kind):
        raise CheckError(f"expected {kind}, found {manifest.kind}", where=str(path))
    return manifest


# A command opens the same few artefacts again and again.
@lru_cache(maxsize=1024)
def _parse(content: bytes, where: str) -> Manifest:
    todo = "Delete the folder and run again."
    try:
        text = content.decode()
        body = json.loads(text)
        # The format is checked first: other formats may have other fields.
        if body["format"] != (expected := version_of("manifest")):
            raise CheckError(f"expected format {expected}, found format {body['format']}", where=where, todo=todo)
        body.pop("digest")
        manifest = Manifest(**body | {"files": {check_name(n): FileEntry(**e) for n, e in body["files"].items()}})
        # The text holds a digest of the values, so that it shows whatever was changed since it was written.
        as_written = text == manifest.to_json()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckError(f"not a manifest ({error})", where=where, todo=todo) from error
    if not as_written:
        raise CheckError("not as it was written: a value, its digest or its form was changed", where=where, todo=todo)
    return manifest


def open_artefact(folder: Path, kind: str, command: str = "again", content: bool = False) -> Manifest:
    """Read the manifest of an artefact; raise if one of its files is missing or of another size.

    `command`: makes the artefact, for messages. `content`: whether the sha256 of every file is compared as well.
    """
    manifest, todo = read_manifest(folder, kind), f"Delete the folder and run {command}."
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.exists() or path.stat().st_size != entry.bytes:
            raise CheckError(f"{name} is missing or does not have {entry.bytes} bytes", where=str(folder), todo=todo)
        if content and sha256_file(path) != entry.sha256:
            raise CheckError(f"{name} was changed after it was written", where=str(folder), todo=todo)
    return manifest


def read_parts(folder: Path, manifest: Manifest, columns: list[str] | None = None) -> pa.Table:
    """Read all shards of an artefact as one table, in row order."""
    return pa.concat_tables([read_columns(folder / name, columns) for name in manifest.parts])


def read_columns(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some of its columns."""
    # `read_table` would import pyarrow.dataset and pandas, which take as long as reading COCO's captions.
    with pq.ParquetFile(path) as file:
        return file.read(columns)


def view_column(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return the numbers of a column without nulls as a read-only array; several chunks are copied into one."""
    # `to_numpy` would import pandas, which takes as long as opening the encodings of COCO's test split.
    return np.from_dlpack(combine_chunks(column))


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; one chunk is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
