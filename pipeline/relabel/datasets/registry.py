"""Manifests of data (data_manifests/*.yaml), one per dataset: its files, their sha256 and their sources."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from relabel.core.errors import CheckError, MissingError, UsageError, choices
from relabel.store.files import input_sha256


class _Model(BaseModel):
    # A misspelt key is an error, since it would otherwise drop a source or a check without a word.
    model_config = ConfigDict(extra="forbid", frozen=True)


class Content(_Model):
    """Size and sha256 that a file must have."""

    bytes: int
    sha256: str


class Source(_Model):
    """A place of a file, or of an archive (zip, jar) that has it as `member`.

    `package`, `path`: an installed Python distribution, and a file of it.
    `mirror`: path below the folder that `--mirror` or $RELABEL_MIRROR names.
    `maven`: coordinate of a jar, `group:artifact:version` or `group:artifact:version:classifier`.
    `url`: address upstream; `archive` is the content of an archive there. An address of fsspec (hf://) is a pattern of
        Parquet files, whose columns except images are copied into one file.
    """

    package: str | None = None
    path: str = ""
    mirror: str | None = None
    maven: str | None = None
    url: str | None = None
    member: str | None = None
    archive: Content | None = None

    def __str__(self) -> str:
        place = self.url or next(f"{k} {v}" for k, v in self if v)
        return f"{place} ({self.member} in it)" if self.url and self.member else place

    @property
    def jar(self) -> str:
        """Path of a jar in any Maven repository."""
        group, name, version, *classifier = str(self.maven).split(":")
        return f"{group.replace('.', '/')}/{name}/{version}/{'-'.join([name, version, *classifier])}.jar"

    def path_here(self, mirror: Path | None) -> Path | None:
        """Return the path that the file or archive would have on this machine."""
        if self.maven:
            local = os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository"
            return Path(local) / self.jar
        if self.package:
            # The metadata of a distribution gives its files without an import of the package.
            with suppress(metadata.PackageNotFoundError):
                return Path(str(metadata.distribution(self.package).locate_file(self.path)))
        return mirror / self.mirror if mirror and self.mirror else None


class DataFile(Content):
    """One file of a dataset.

    `name`: its name in `data/DATASET/`.
    `holds`: description of its content, one line.
    `bytes`, `sha256`: size and hash of the preferred edition; without them, any content is accepted.
    `also`: other accepted editions: different bytes, the same data.
    `sources`: best first.
    """

    name: str
    holds: str
    bytes: int = 0
    sha256: str = ""
    also: tuple[Content, ...] = ()
    sources: tuple[Source, ...]

    @property
    def contents(self) -> tuple[Content, ...]:
        """All accepted editions, the preferred one first."""
        return (Content(bytes=self.bytes, sha256=self.sha256), *self.also)


class Manifest(_Model):
    """One dataset or asset: all its files or, with `alternatives`, any one of them, best first."""

    name: str
    title: str
    purpose: str
    licence: str
    citation: str
    homepage: str
    alternatives: bool = False
    files: tuple[DataFile, ...]

    def file(self, name: str) -> DataFile:
        """Find a file by name."""
        for file in self.files:
            if file.name == name:
                return file
        raise UsageError(f"{self.name} has no file {name!r}", todo=choices(name, (file.name for file in self.files)))


def manifests_folder() -> Path:
    """Return the folder of the manifests: inside an installed package, else at the root of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data_manifests", package.parents[1] / "data_manifests"):
        if folder.is_dir():
            return folder
    raise MissingError("the data manifests are not there", where=str(package), todo="Install relabel-itr again.")


def names() -> list[str]:
    """Return the names of all datasets, sorted."""
    return sorted(p.stem for p in manifests_folder().glob("*.yaml"))


def load_manifest(name: str) -> Manifest:
    """Read one manifest."""
    # Checked against the list first: a name is never used as a path, and the error can suggest one.
    if name not in names():
        raise UsageError(f"no dataset {name!r} to fetch", todo=choices(name, names()))
    return Manifest.model_validate(yaml.safe_load((manifests_folder() / f"{name}.yaml").read_text(encoding="utf-8")))


def check(sha256: str, size: int, accepted: Sequence[Content], where: str) -> None:
    """Raise CheckError unless some accepted content has this sha256 and size, or is not known."""
    if not any(not c.sha256 or (c.sha256 == sha256 and c.bytes == size) for c in accepted):
        expected = " or ".join(f"sha256 {c.sha256} ({c.bytes} bytes)" for c in accepted)
        raise CheckError(f"expected {expected}, found sha256 {sha256} ({size} bytes)", where=where)


def check_file(path: Path, accepted: Sequence[Content]) -> Path:
    """Hash a file and return its path; raises as `check`, and OSError if it cannot be read."""
    check(input_sha256(path), path.stat().st_size, accepted, str(path))
    return path
