"""What of each dataset is here, and where the rest can be had: `relabel fetch --list`."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relabel.datasets.content import check_file
from relabel.datasets.manifest import DataFile, Manifest, MavenSource, PackageSource, UrlSource, load_manifest, names
from relabel.datasets.places import local_path, mirror_folder, sources_of
from relabel.errors import CheckError, MissingError

State = Literal["present", "damaged", "local", "remote", "missing"]
"""`present`: in `data/DATASET/` and verified. `damaged`: there, but not the file. `local`: a package or the mirror has
it (its size is right, its hash is checked when it is fetched). `remote`: to be downloaded. `missing`: only a mirror has
it, and none is named or the named one has not."""


@dataclass(frozen=True)
class FileStatus:
    """Where one file stands.

    Attributes
    ----------
    name, file : str
        Dataset and file.
    bytes : int
        Its size.
    alternative : bool
        True if another file of the dataset serves as well.
    state : State
    where : str
        Path, package, mirror path or URL.
    """

    name: str
    file: str
    bytes: int
    alternative: bool
    state: State
    where: str

    @property
    def present(self) -> bool:
        """Whether it was fetched and is right."""
        return self.state == "present"


def status(data: Path, mirror: Path | None = None) -> list[FileStatus]:
    """Look at every file of every dataset.

    Raises
    ------
    UsageError
        If the mirror is no folder.
    """
    mirror = mirror_folder(mirror)
    return [_status(m, f, data, mirror) for m in map(load_manifest, names()) for f in m.files]


def _status(manifest: Manifest, file: DataFile, data: Path, mirror: Path | None) -> FileStatus:
    def say(state: State, where: object) -> FileStatus:
        return FileStatus(manifest.name, file.name, file.bytes, manifest.alternatives, state, str(where))

    path = data / manifest.name / file.name
    if path.exists():
        try:
            return say("present", check_file(path, file.contents))
        except (CheckError, OSError):
            return say("damaged", path)
    for source in sources_of(manifest, file, mirror):
        if isinstance(source, UrlSource | MavenSource):
            return say("remote", source.url if isinstance(source, UrlSource) else source)
        member = source.member if isinstance(source, PackageSource) else None
        try:
            found = local_path(source, mirror)
            if _size(found, member) in {c.bytes for c in file.contents}:
                return say("local", source if isinstance(source, PackageSource) else found)
        except (MissingError, OSError, KeyError, zipfile.BadZipFile):
            continue
    return say("missing", next(s for s in reversed(file.sources) if not isinstance(s, UrlSource | MavenSource)))


def _size(path: Path, member: str | None) -> int:
    if member is None:
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return archive.getinfo(member).file_size
