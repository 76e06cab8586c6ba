"""Sources of files: `data/DATASET/`, installed packages, mirrors, the Maven folder; and the state of every file."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.datasets.registry import DataFile, Manifest, Source, check_file, load_manifest, names

MIRROR = "RELABEL_MIRROR"


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
