"""Sources of files: `data/DATASET/`, installed packages, mirrors, Maven repositories; and the state of every file.

jgo knows, in pure Python, the Maven folder of this machine and the repositories to ask; its own settings may name a
private one. The transfer is `download`'s.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.datasets.registry import (
    DataFile,
    Manifest,
    MavenSource,
    MirrorSource,
    PackageSource,
    Source,
    UrlSource,
    check_file,
    load_manifest,
    names,
)

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
    same_layout = MirrorSource(mirror=f"{manifest.name}/{file.name}")
    listed = [*file.sources, *([] if same_layout in file.sources else [same_layout])]
    available = [s for s in listed if mirror is not None or not isinstance(s, MirrorSource)]
    # The sort is stable: among the local sources, and among the downloads, the manifest's order stays.
    return sorted(available, key=lambda s: isinstance(s, UrlSource | MavenSource))


def local_path(source: PackageSource | MirrorSource, mirror: Path | None) -> Path:
    """Return the path of the file or archive of a source."""
    if isinstance(source, MirrorSource):
        path = (mirror or Path()) / source.mirror
        if mirror is None or not path.is_file():
            raise MissingError("not in the mirror", where=str(path if mirror else source))
        return path
    try:
        # The metadata of a distribution gives its files without an import of the package.
        path = Path(str(metadata.distribution(source.package).locate_file(source.path)))
    except metadata.PackageNotFoundError:
        raise MissingError("not installed", where=str(source)) from None
    if not path.is_file():
        raise MissingError(f"has no {source.path}", where=str(source))
    return path


def locate(name: str, file: str | None, data: Path, mirror: Path | None = None) -> Path:
    """Find a file of a dataset on this machine and verify it, without copying or downloading.

    `name`: dataset. `file`: file of the dataset; None takes the first one that exists. `data`: folder of fetched files.
    `mirror`: else $RELABEL_MIRROR. Returns Path: in `data/NAME/`, else inside an installed package, else in the mirror.
    """
    manifest = load_manifest(name)
    mirror = mirror_folder(mirror)
    wanted = manifest.files if file is None else (manifest.file(file),)
    # The first copy decides, so a damaged file in `data` is reported rather than hidden by another copy.
    for each, path in _paths(manifest, wanted, data, mirror):
        try:
            return check_file(path, each.contents)
        except CheckError as error:
            todo = f"Delete it, then `relabel fetch {name}`."
            raise CheckError(error.problem, where=error.where, todo=todo) from None
    problem = f"{name} is not here" if file is None else f"{file} of {name} is not here"
    raise MissingError(problem, where=str(data / name), todo=f"Get it with `relabel fetch {name}`.")


def _paths(
    manifest: Manifest, files: Sequence[DataFile], data: Path, mirror: Path | None
) -> Iterator[tuple[DataFile, Path]]:
    """Yield plain files on this machine: fetched ones first, then those of packages and the mirror."""
    # Two passes: any fetched alternative comes before a better one of a package.
    for file in files:
        if (path := data / manifest.name / file.name).is_file():
            yield file, path
    for file in files:
        for source in sources_of(manifest, file, mirror):
            # A member of an archive has no path that could be read in place.
            if isinstance(source, MirrorSource) or (isinstance(source, PackageSource) and source.member is None):
                with suppress(MissingError):
                    yield file, local_path(source, mirror)


def kept_jar(source: MavenSource) -> Path | None:
    """Find a jar in this machine's Maven folder (`~/.m2`, or $M2_REPO)."""
    path = _artifact(source).cached_path
    return Path(path) if path is not None and Path(path).is_file() else None


def jar_urls(source: MavenSource) -> list[str]:
    """Return the address of a jar in each repository; at least one."""
    artifact = _artifact(source)
    below = f"{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
    urls = [f"{str(repository).rstrip('/')}/{below}" for repository in artifact.context.remote_repos.values()]
    if not urls:
        raise MissingError("jgo knows no Maven repository", where=str(source))
    return urls


def _artifact(source: MavenSource) -> Any:
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError:
        raise MissingError("needs jgo: pip install 'relabel-itr[spice]'", where=str(source)) from None
    group, name, version, *classifier = source.maven.split(":")
    context = MavenContext()
    # jgo's settings may name a repository inside a company, which is asked as well.
    context.remote_repos = context.remote_repos | GlobalSettings.load().repositories
    return context.project(group, name).at_version(version).artifact(*classifier)


State = Literal["present", "damaged", "local", "remote", "missing"]
"""`present`: in `data/DATASET/` and verified. `damaged`: in `data/DATASET/` with other content. `local`: in a package
or the mirror with the right size; its hash is checked when it is fetched. `remote`: to be downloaded. `missing`: in a
mirror alone, and there is none or it lacks the file."""


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

    @property
    def present(self) -> bool:
        """True if the file is fetched and verified."""
        return self.state == "present"


def status(data: Path, mirror: Path | None = None) -> list[FileStatus]:
    """Return the state of every file of every dataset."""
    mirror = mirror_folder(mirror)
    return [_status(m, f, data, mirror) for m in map(load_manifest, names()) for f in m.files]


def _status(manifest: Manifest, file: DataFile, data: Path, mirror: Path | None) -> FileStatus:
    def file_status(state: State, where: object) -> FileStatus:
        return FileStatus(manifest.name, file.name, file.bytes, manifest.alternatives, state, str(where))

    path = data / manifest.name / file.name
    if path.exists():
        try:
            return file_status("present", check_file(path, file.contents))
        except (CheckError, OSError):
            return file_status("damaged", path)
    for source in sources_of(manifest, file, mirror):
        # No request is made: the listing works without a network.
        if isinstance(source, UrlSource | MavenSource):
            return file_status("remote", source.url if isinstance(source, UrlSource) else source)
        member = source.member if isinstance(source, PackageSource) else None
        try:
            local = local_path(source, mirror)
            # The size alone, since hashing every package and mirror would make the listing slow.
            if _size(local, member) in {c.bytes for c in file.contents}:
                return file_status("local", source if isinstance(source, PackageSource) else local)
        except (MissingError, OSError, KeyError, zipfile.BadZipFile):
            continue
    # A source that can be downloaded has returned above, so the rest are local; the last one is where the file belongs.
    return file_status("missing", next(s for s in reversed(file.sources) if not isinstance(s, UrlSource | MavenSource)))


def _size(path: Path, member: str | None) -> int:
    if member is None:
        return path.stat().st_size
    # The directory of the archive has the size, so nothing is unpacked.
    with zipfile.ZipFile(path) as archive:
        return archive.getinfo(member).file_size
