"""Where bytes are on this machine: in `data/DATASET/`, in an installed package, in a mirror."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from relabel.datasets.content import check_file
from relabel.datasets.manifest import (
    DataFile,
    Manifest,
    MavenSource,
    MirrorSource,
    PackageSource,
    Source,
    UrlSource,
    load_manifest,
)
from relabel.errors import CheckError, MissingError, UsageError

MIRROR = "RELABEL_MIRROR"


def mirror_folder(mirror: Path | None) -> Path | None:
    """Return the mirror to use: the given folder, else $RELABEL_MIRROR, else none.

    Raises
    ------
    UsageError
        If it is no folder.
    """
    folder = mirror or (Path(os.environ[MIRROR]) if os.environ.get(MIRROR) else None)
    if folder is not None and not folder.is_dir():
        raise UsageError("the mirror is not a folder", where=str(folder), todo=f"Set --mirror DIR or ${MIRROR}.")
    return folder


def sources_of(manifest: Manifest, file: DataFile, mirror: Path | None) -> list[Source]:
    """Sources in the order they are tried: what is on this machine, a mirror included, before any download.

    A mirror may also be another machine's data folder: `DATASET/FILE` is looked for as well.
    """
    same_layout = MirrorSource(mirror=f"{manifest.name}/{file.name}")
    listed = [*file.sources, *([] if same_layout in file.sources else [same_layout])]
    kept = [s for s in listed if mirror is not None or not isinstance(s, MirrorSource)]
    return sorted(kept, key=lambda s: isinstance(s, UrlSource | MavenSource))


def local_path(source: PackageSource | MirrorSource, mirror: Path | None) -> Path:
    """Find the file or archive that a source means.

    Raises
    ------
    MissingError
        If it is not there.
    """
    if isinstance(source, MirrorSource):
        path = (mirror or Path()) / source.mirror
        if mirror is None or not path.is_file():
            raise MissingError("not in the mirror", where=str(path if mirror else source))
        return path
    try:
        path = Path(str(metadata.distribution(source.package).locate_file(source.path)))
    except metadata.PackageNotFoundError:
        raise MissingError("not installed", where=str(source)) from None
    if not path.is_file():
        raise MissingError(f"has no {source.path}", where=str(source))
    return path


def locate(name: str, file: str | None, data: Path, mirror: Path | None = None) -> Path:
    """Find a file of a dataset where it is, verified and without copying or downloading.

    Parameters
    ----------
    name : str
        Dataset.
    file : str or None
        File of it; None takes the first of its files that is found.
    data : Path
        Folder of fetched files.
    mirror : Path, optional
        Else $RELABEL_MIRROR.

    Returns
    -------
    Path
        In `data/NAME/`, else inside an installed package, else in the mirror.

    Raises
    ------
    MissingError
        If it is none of these, or only inside an archive: `relabel fetch NAME` gets it.
    CheckError
        If what is there is not what the manifest says.
    UsageError
        If there is no such dataset, file or mirror.
    """
    manifest = load_manifest(name)
    mirror = mirror_folder(mirror)
    wanted = manifest.files if file is None else (manifest.file(file),)
    for each, path in _places(manifest, wanted, data, mirror):
        try:
            return check_file(path, each.contents)
        except CheckError as error:
            todo = f"Delete it, then `relabel fetch {name}`."
            raise CheckError(error.what, where=error.where, todo=todo) from None
    what = f"{name} is not here" if file is None else f"{file} of {name} is not here"
    raise MissingError(what, where=str(data / name), todo=f"Get it with `relabel fetch {name}`.")


def _places(
    manifest: Manifest, files: Sequence[DataFile], data: Path, mirror: Path | None
) -> Iterator[tuple[DataFile, Path]]:
    """Plain files on this machine: what was fetched first, then packages and the mirror."""
    for file in files:
        if (path := data / manifest.name / file.name).is_file():
            yield file, path
    for file in files:
        for source in sources_of(manifest, file, mirror):
            if isinstance(source, MirrorSource) or (isinstance(source, PackageSource) and source.member is None):
                with suppress(MissingError):
                    yield file, local_path(source, mirror)
