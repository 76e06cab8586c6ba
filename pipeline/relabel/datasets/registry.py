"""Data manifests (data_manifests/*.yaml), one per dataset: its files, their sha256, and their sources.

Local sources are `data/DATASET/`, installed packages, a mirror and the local Maven repository.
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
    # Unknown keys are an error, because a misspelt key would silently drop a source or a check.
    model_config = ConfigDict(extra="forbid", frozen=True)


class Content(_Model):
    """Required size and sha256 of a file."""

    bytes: int
    sha256: str


class Source(_Model):
    """Location of a file, or of an archive (zip, jar) that contains it as `member`.

    `package`, `path`: an installed Python distribution, and the path of a file in it.
    `mirror`: path relative to the folder given by `--mirror` or $RELABEL_MIRROR.
    `maven`: coordinates of a jar, `group:artifact:version` or `group:artifact:version:classifier`.
    `url`: upstream URL. `archive`: size and sha256 of an archive at this URL. An fsspec URL (hf://) is a pattern of
        Parquet files. Their columns, except images, are copied into one file.
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
        """Path of the jar in a Maven repository."""
        group, name, version, *classifier = str(self.maven).split(":")
        return f"{group.replace('.', '/')}/{name}/{version}/{'-'.join([name, version, *classifier])}.jar"

    def path_here(self, mirror: Path | None) -> Path | None:
        """Return the local path of the file or archive, whether it exists or not; None if the source is not local."""
        if self.maven:
            local = os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository"
            return Path(local) / self.jar
        if self.package:
            # Uses the metadata of the distribution, because importing the package may be slow.
            with suppress(metadata.PackageNotFoundError):
                return Path(str(metadata.distribution(self.package).locate_file(self.path)))
        return mirror / self.mirror if mirror and self.mirror else None


class DataFile(Content):
    """One file of a dataset.

    `name`: file name in `data/DATASET/`.
    `holds`: description of the content in one line.
    `bytes`, `sha256`: size and hash of the preferred edition. By default, any content is accepted.
    `also`: other accepted editions: different bytes, same data.
    `sources`: sources in order of preference.
    """

    name: str
    holds: str
    bytes: int = 0
    sha256: str = ""
    also: tuple[Content, ...] = ()
    sources: tuple[Source, ...]

    @property
    def contents(self) -> tuple[Content, ...]:
        """All accepted editions, starting with the preferred one."""
        return (Content(bytes=self.bytes, sha256=self.sha256), *self.also)


class Manifest(_Model):
    """One dataset or asset. With `alternatives`, any one of its files is sufficient; the best is listed first."""

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
        raise UsageError(f"{self.name} has no file {name!r}", hint=choices(name, (file.name for file in self.files)))


def manifests_folder() -> Path:
    """Return the folder of the manifests, in the installed package or at the root of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data_manifests", package.parents[1] / "data_manifests"):
        if folder.is_dir():
            return folder
    raise MissingError("the data manifests are missing", where=str(package), hint="Install relabel-itr again.")


def names() -> list[str]:
    """Return the names of all datasets, sorted."""
    return sorted(p.stem for p in manifests_folder().glob("*.yaml"))


def load_manifest(name: str) -> Manifest:
    """Read the manifest of a dataset."""
    # Checked against the list first: a name must not be used as a path, and the error can suggest names.
    if name not in names():
        raise UsageError(f"no dataset {name!r} to fetch", hint=choices(name, names()))
    return Manifest.model_validate(yaml.safe_load((manifests_folder() / f"{name}.yaml").read_text(encoding="utf-8")))


def check(sha256: str, size: int, accepted: Sequence[Content], where: str) -> None:
    """Raise CheckError unless an accepted edition has this sha256 and size, or has no sha256."""
    if not any(not c.sha256 or (c.sha256 == sha256 and c.bytes == size) for c in accepted):
        expected = " or ".join(f"sha256 {c.sha256} ({c.bytes} bytes)" for c in accepted)
        raise CheckError(f"expected {expected}, found sha256 {sha256} ({size} bytes)", where=where)


def check_file(path: Path, accepted: Sequence[Content]) -> Path:
    """Verify a file and return its path. Raises as `check` does, and OSError if the file cannot be read."""
    check(input_sha256(path), path.stat().st_size, accepted, str(path))
    return path


def mirror_folder(mirror: Path | None) -> Path | None:
    """Return the mirror: the given folder, otherwise $RELABEL_MIRROR, otherwise None."""
    folder = mirror or (Path(os.environ[MIRROR]) if os.environ.get(MIRROR) else None)
    if folder is not None and not folder.is_dir():
        raise UsageError("the mirror is not a folder", where=str(folder), hint=f"Set --mirror DIR or ${MIRROR}.")
    return folder


def sources_of(manifest: Manifest, file: DataFile, mirror: Path | None) -> list[Source]:
    """Return sources in the order in which they are tried: local sources, including the mirror, before downloads.

    A mirror may be the data folder of another machine, so `DATASET/FILE` in the mirror is tried as well.
    """
    jars = [Source(url=f"{place}/{source.jar}") for source in file.sources if source.maven for place in repositories()]
    listed = dict.fromkeys([*file.sources, *jars, Source(mirror=f"{manifest.name}/{file.name}")])
    available = [source for source in listed if mirror is not None or not source.mirror]
    # A stable sort keeps the manifest's order among local sources and among downloads.
    return sorted(available, key=lambda source: source.url is not None)


def repositories() -> list[str]:
    """Return the URLs of the Maven repositories that jgo knows; none if jgo is not installed.

    They include repositories in the user's settings of jgo, for example of a company.
    """
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError:
        return []
    urls = MavenContext().remote_repos | GlobalSettings.load().repositories
    return [str(url).rstrip("/") for url in urls.values()]


def local_path(source: Source, mirror: Path | None) -> Path:
    """Return the path of a source's file or archive on this machine; raise MissingError if it does not exist."""
    path = source.path_here(mirror)
    if path is None or not path.is_file():
        advice = "; jgo downloads it: pip install 'relabel-itr[spice]'" if source.maven and not repositories() else ""
        raise MissingError(f"not on this machine{advice}", where=str(source))
    return path


def locate(name: str, file: str | None, data: Path, mirror: Path | None = None) -> Path:
    """Find a file of a dataset on this machine and verify it, without copying or downloading.

    `name`: dataset. `file`: file of the dataset; None takes the first one that exists. `data`: folder of fetched files.
    `mirror`: by default $RELABEL_MIRROR. The places are tried in the order `data/NAME/`, installed package, mirror.
    """
    manifest, mirror = load_manifest(name), mirror_folder(mirror)
    wanted = manifest.files if file is None else (manifest.file(file),)
    # A fetched alternative is preferred to a better one in a package.
    places = [(each, data / name / each.name) for each in wanted]
    places += [
        (each, path)
        for each in wanted
        for source in sources_of(manifest, each, mirror)
        # Members of archives cannot be read in place.
        if source.member is None and source.maven is None
        if (path := source.path_here(mirror)) is not None
    ]
    # Only the first existing copy is checked: a damaged file in `data` is reported, not hidden by another copy.
    for each, path in places:
        if path.is_file():
            try:
                return check_file(path, each.contents)
            except CheckError as error:
                hint = f"Delete it, then `relabel fetch {name}`."
                raise CheckError(error.problem, where=error.where, hint=hint) from None
    problem = f"{name} not found" if file is None else f"{file} of {name} not found"
    raise MissingError(problem, where=str(data / name), hint=f"Get it with `relabel fetch {name}`.")


State = Literal["present", "damaged", "local", "remote", "missing"]
"""`present`: in `data/DATASET/` and verified. `damaged`: in `data/DATASET/` with wrong content. `local`: in a package
or the mirror; verified when fetched. `remote`: can be downloaded. `missing`: only available from a mirror, and there is
no mirror that has the file."""


@dataclass(frozen=True)
class FileStatus:
    """State of one file.

    `name`, `file`: dataset and file.
    `bytes`: size of the file.
    `alternative`: True if any one file of the dataset is sufficient.
    `where`: path, package, mirror path or URL.
    """

    name: str
    file: str
    bytes: int
    alternative: bool
    state: State
    where: str


def status(data: Path, mirror: Path | None = None) -> list[FileStatus]:
    """Return the state of every file of every dataset, without network access."""
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
