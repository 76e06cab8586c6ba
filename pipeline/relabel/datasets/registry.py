"""Manifests of data (data_manifests/*.yaml), one per dataset: its files, their sha256, and their sources.

The sources on this machine are `data/DATASET/`, installed packages, a mirror and the folder of Maven.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from relabel.core.errors import CheckError, MissingError, UsageError, choices
from relabel.store.files import input_sha256

MIRROR = "RELABEL_MIRROR"


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


def mirror_folder(mirror: Path | None) -> Path | None:
    """Return the mirror to use: the given folder, else $RELABEL_MIRROR, else none."""
    folder = mirror or (Path(os.environ[MIRROR]) if os.environ.get(MIRROR) else None)
    if folder is not None and not folder.is_dir():
        raise UsageError("the mirror is not a folder", where=str(folder), todo=f"Set --mirror DIR or ${MIRROR}.")
    return folder


def sources_of(manifest: Manifest, file: DataFile, mirror: Path | None) -> list[Source]:
    """Return sources in the order they are tried: those on this machine, a mirror included, before any download.

    A mirror may be the data folder of another machine, so `DATASET/FILE` below it is tried as well.
    """
    jars = [Source(url=f"{place}/{source.jar}") for source in file.sources if source.maven for place in repositories()]
    listed = dict.fromkeys([*file.sources, *jars, Source(mirror=f"{manifest.name}/{file.name}")])
    available = [source for source in listed if mirror is not None or not source.mirror]
    # The sort is stable: among the local sources, and among the downloads, the manifest's order stays.
    return sorted(available, key=lambda source: source.url is not None)


def repositories() -> list[str]:
    """Return the addresses of the Maven repositories that jgo knows; none without jgo.

    jgo's settings may name a repository inside a company, which is asked as well.
    """
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError:
        return []
    known = MavenContext().remote_repos | GlobalSettings.load().repositories
    return [str(address).rstrip("/") for address in known.values()]


def local_path(source: Source, mirror: Path | None) -> Path:
    """Return the path of the file or archive of a source, which is on this machine."""
    path = source.path_here(mirror)
    if path is None or not path.is_file():
        advice = "; jgo downloads it: pip install 'relabel-itr[spice]'" if source.maven and not repositories() else ""
        raise MissingError(f"not on this machine{advice}", where=str(source))
    return path


def locate(name: str, file: str | None, data: Path, mirror: Path | None = None) -> Path:
    """Find a file of a dataset on this machine and verify it, without copying or downloading.

    `name`: dataset. `file`: file of the dataset; None takes the first one that exists. `data`: folder of fetched files.
    `mirror`: else $RELABEL_MIRROR. Returns Path: in `data/NAME/`, else inside an installed package, else in the mirror.
    """
    manifest, mirror = load_manifest(name), mirror_folder(mirror)
    wanted = manifest.files if file is None else (manifest.file(file),)
    # Any fetched alternative comes before a better one of a package.
    places = [(each, data / name / each.name) for each in wanted]
    places += [
        (each, path)
        for each in wanted
        for source in sources_of(manifest, each, mirror)
        # A member of an archive has no path that could be read in place.
        if source.member is None and source.maven is None
        if (path := source.path_here(mirror)) is not None
    ]
    # The first copy decides, so a damaged file in `data` is reported rather than hidden by another copy.
    for each, path in places:
        if path.is_file():
            try:
                return check_file(path, each.contents)
            except CheckError as error:
                todo = f"Delete it, then `relabel fetch {name}`."
                raise CheckError(error.problem, where=error.where, todo=todo) from None
    problem = f"{name} is not here" if file is None else f"{file} of {name} is not here"
    raise MissingError(problem, where=str(data / name), todo=f"Get it with `relabel fetch {name}`.")


State = Literal["present", "damaged", "local", "remote", "missing"]
"""`present`: in `data/DATASET/` and verified. `damaged`: in `data/DATASET/` with other content. `local`: in a package
or the mirror; it is checked when it is fetched. `remote`: to be downloaded. `missing`: in a mirror alone, and there is
none or it lacks the file."""


@dataclass(frozen=True)
class FileStatus:
    """State of one file.

    `name`, `file`: dataset and file.
    `bytes`: its size.
    `alternative`: True if another file of the dataset serves as well.
    `where`: path, package, mirror path or URL.
    """

    name: str
    file: str
    bytes: int
    alternative: bool
    state: State
    where: str


def status(data: Path, mirror: Path | None = None) -> list[FileStatus]:
    """Return the state of every file of every dataset, without any request."""
    mirror = mirror_folder(mirror)
    return [
        FileStatus(manifest.name, file.name, file.bytes, manifest.alternatives, *_state(manifest, file, data, mirror))
        for manifest in map(load_manifest, names())
        for file in manifest.files
    ]


def _state(manifest: Manifest, file: DataFile, data: Path, mirror: Path | None) -> tuple[State, str]:
    path = data / manifest.name / file.name
    if path.exists():
        try:
            return "present", str(check_file(path, file.contents))
        except (CheckError, OSError):
            return "damaged", str(path)
    for source in sources_of(manifest, file, mirror):
        if source.url:
            return "remote", source.url
        with suppress(MissingError):
            local_path(source, mirror)
            return "local", str(source)
    return "missing", str(file.sources[-1])
