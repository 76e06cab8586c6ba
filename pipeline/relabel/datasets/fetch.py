"""Fetch datasets into `data/DATASET/`: verified, atomic and resumable, from the first source that has each file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.core.runtime import SILENT, Progress
from relabel.datasets.download import copy_texts, download, open_content, save
from relabel.datasets.registry import (
    DataFile,
    Manifest,
    Source,
    check_file,
    load_manifest,
    local_path,
    mirror_folder,
    sources_of,
)

DOWNLOADS = ".downloads"
"""Folder in `data` for partial downloads. They are kept for the next run."""


def fetch(
    name: str,
    data: Path,
    mirror: Path | None = None,
    progress: Progress = SILENT,
    files: Sequence[str] | None = None,
) -> list[Path]:
    """Fetch a dataset into `data/NAME/` and return the paths of the verified files.

    `name`: dataset, one of `names()`. `data`: folder of fetched files. `mirror`: folder that is tried before any URL,
    by default $RELABEL_MIRROR. `files`: names of files to fetch; by default all, or the first available alternative.
    """
    manifest = load_manifest(name)
    # All files requested by name are fetched, even if they are alternatives.
    wanted = [manifest.file(f) for f in files] if files else list(manifest.files)
    job = _Job(manifest, data / name, data / DOWNLOADS, mirror_folder(mirror), progress)
    first_only = manifest.alternatives and not files
    if first_only:
        # An alternative that exists is sufficient, even if a better one could be fetched.
        wanted.sort(key=lambda file: not (job.folder / file.name).exists())
    paths, failed = list[Path](), dict[str, list[RelabelError]]()
    for file in wanted:
        # Continue with the other files, to report all failures in one error.
        if reasons := job.get(file):
            failed[file.name] = reasons
            continue
        paths.append(job.folder / file.name)
        if first_only:
            break
    # Deleted only now, because several files can be members of one archive. Incomplete downloads are kept.
    for part in job.parts:
        part.unlink(missing_ok=True)
    if failed and not (first_only and paths):
        raise _failure(manifest, job.folder, failed)
    return paths


@dataclass
class _Job:
    """One call of `fetch`. `parts`: complete downloads."""

    manifest: Manifest
    folder: Path
    downloads: Path
    mirror: Path | None
    progress: Progress
    parts: set[Path] = field(default_factory=set)

    def get(self, file: DataFile) -> list[RelabelError]:
        """Fetch one file from the first source that has it; return the error of each source if all failed."""
        out, reasons = self.folder / file.name, list[RelabelError]()
        verified = "verified" if file.sha256 else "not verified, because its sha256 is not known"
        if out.exists():
            # Never replaced, because it may be the user's own file.
            try:
                check_file(out, file.contents)
            except CheckError as error:
                return [CheckError(f"delete or move the existing file: {error.problem}", where=str(out))]
            self.progress.note(f"{out}: exists, {verified}")
            return []
        for source in sources_of(self.manifest, file, self.mirror):
            try:
                self.take(source, file, out)
            except (MissingError, CheckError) as error:
                reasons.append(error)
                # Report wrong content even if a later source has the file.
                if isinstance(error, CheckError):
                    self.progress.note(f"{out}: wrong content from {source}: {error.problem}")
            else:
                self.progress.note(f"{out}: from {source}, {verified} ({file.holds})")
                return []
        return reasons or [MissingError("only available from a mirror: set --mirror DIR or $RELABEL_MIRROR")]

    def take(self, source: Source, file: DataFile, out: Path) -> None:
        """Fetch a file from one source."""
        if source.url is None:
            self.unpack(local_path(source, self.mirror), source, file, out)
            return
        if not source.url.startswith("http"):
            copy_texts(source.url, out)
            return
        accepted = (source.archive,) if source.archive else file.contents
        # Named by hash: files of one archive share its download, and a new edition does not resume an old one.
        part = self.downloads / f"{accepted[0].sha256[:16]}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        # Imported here, because listing files must work without the extra `pipeline`.
        from filelock import FileLock

        # Two processes that append to one partial file would damage it.
        with FileLock(part.with_suffix(".lock")):
            # Another process may have fetched the file while this one waited for the lock.
            if out.exists():
                return
            download(source.url, accepted, part, self.progress, f"{self.manifest.name}: {Path(source.url).name}")
            self.parts.add(part)
            self.unpack(part, source, file, out)

    def unpack(self, path: Path, source: Source, file: DataFile, out: Path) -> None:
        """Copy a local file, or a member of a local archive, into the data folder."""
        title = f"{self.manifest.name}/{file.name}"
        with open_content(path, source.member) as stream, self.progress.bar(title, file.bytes, "B") as bar:
            save(stream, out, file.contents, str(source), bar)


def _failure(manifest: Manifest, folder: Path, failed: Mapping[str, Sequence[RelabelError]]) -> RelabelError:
    """Return the error for failed files, with path, size, sha256 and origin of each for a manual download.

    It is a CheckError if a source had wrong content, otherwise a MissingError.
    """
    problems, lines = [], []
    for name, reasons in failed.items():
        distinct = dict.fromkeys(f"{r.where}: {r.problem}" if r.where else r.problem for r in reasons)
        problems.append(f"could not fetch {name}: {'; '.join(distinct)}")
        file = manifest.file(name)
        editions = (f"{c.bytes} bytes, sha256 {c.sha256}" if c.sha256 else "any content" for c in file.contents)
        content = " or ".join(editions)
        # The first source with a URL.
        origin = next((f", from {s}" for s in sources_of(manifest, file, None) if s.url), "")
        lines.append(f"  {folder / name} ({content}){origin}")
    which = "any one" if manifest.alternatives else "all"
    hint = f"Or download {which} of these files ({manifest.homepage}), and run `relabel fetch {manifest.name}` again:"
    wrong = any(isinstance(reason, CheckError) for reasons in failed.values() for reason in reasons)
    kind = CheckError if wrong else MissingError
    return kind("\n".join(problems), where=manifest.name, hint="\n".join([hint, *lines]))
