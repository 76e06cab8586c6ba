"""Fetch datasets into `data/DATASET/`: verified, atomic, resumable, from the first source that serves each file."""

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
    job = _Job(manifest, data / name, data / DOWNLOADS, mirror_folder(mirror), progress)
    first_only = manifest.alternatives and not files
    if first_only:
        # Any alternative that is here is enough, even where a better one could be fetched.
        wanted.sort(key=lambda file: not (job.folder / file.name).exists())
    paths, failed = list[Path](), dict[str, list[RelabelError]]()
    for file in wanted:
        # The other files are still tried, so that one error names all that failed.
        if reasons := job.get(file):
            failed[file.name] = reasons
            continue
        paths.append(job.folder / file.name)
        if first_only:
            break
    # Kept until here, since several files may be members of one archive; a broken download stays for the next run.
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
        """Put one file in place from the first source that serves it, or return why each source failed."""
        out, reasons = self.folder / file.name, list[RelabelError]()
        verified = "verified" if file.sha256 else "not verified, since its sha256 is not known"
        if out.exists():
            # What is there may be the user's own, so it is never replaced.
            try:
                check_file(out, file.contents)
            except CheckError as error:
                return [CheckError(f"delete what is there, or move it away: {error.problem}", where=str(out))]
            self.progress.note(f"{out}: there already, {verified}")
            return []
        for source in sources_of(self.manifest, file, self.mirror):
            try:
                self.take(source, file, out)
            except (MissingError, CheckError) as error:
                reasons.append(error)
                # Wrong content is worth a line even where a later source serves the file.
                if isinstance(error, CheckError):
                    self.progress.note(f"{out}: refused from {source}: {error.problem}")
            else:
                self.progress.note(f"{out}: from {source}, {verified} ({file.holds})")
                return []
        return reasons or [MissingError("only a mirror has it: name one with --mirror DIR or $RELABEL_MIRROR")]

    def take(self, source: Source, file: DataFile, out: Path) -> None:
        """Put a file in place from one source."""
        if source.url is None:
            self.unpack(local_path(source, self.mirror), source, file, out)
            return
        if not source.url.startswith("http"):
            copy_texts(source.url, out)
            return
        accepted = (source.archive,) if source.archive else file.contents
        # Named by content: files of one archive share its download, and a new edition never resumes an old one.
        part = self.downloads / f"{accepted[0].sha256[:16]}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        # The library belongs to the extra `pipeline`, without which files can be listed.
        from filelock import FileLock

        # Two processes that append to one part would damage it.
        with FileLock(part.with_suffix(".lock")):
            # Another process may have fetched the file while this one waited.
            if out.exists():
                return
            download(source.url, accepted, part, self.progress, f"{self.manifest.name}: {Path(source.url).name}")
            self.parts.add(part)
            self.unpack(part, source, file, out)

    def unpack(self, path: Path, source: Source, file: DataFile, out: Path) -> None:
        """Copy a local file or member into place."""
        title = f"{self.manifest.name}/{file.name}"
        with open_content(path, source.member) as stream, self.progress.bar(title, file.bytes, "B") as bar:
            save(stream, out, file.contents, str(source), bar)


def _failure(manifest: Manifest, folder: Path, failed: Mapping[str, Sequence[RelabelError]]) -> RelabelError:
    """Return the error of failed files, with the path, size, sha256 and origin of each to put it there by hand.

    It is a CheckError if some source served a wrong content, else a MissingError.
    """
    problems, lines = [], []
    for name, reasons in failed.items():
        distinct = dict.fromkeys(f"{r.where}: {r.problem}" if r.where else r.problem for r in reasons)
        problems.append(f"could not get {name}: {'; '.join(distinct)}")
        file = manifest.file(name)
        known = (f"{c.bytes} bytes, sha256 {c.sha256}" if c.sha256 else "any content" for c in file.contents)
        content = " or ".join(known)
        # The first source that is no folder of this machine.
        origin = next((f", from {s}" for s in sources_of(manifest, file, None) if s.url), "")
        lines.append(f"  {folder / name} ({content}){origin}")
    which = "any one" if manifest.alternatives else "them"
    todo = f"Or put {which} there by hand ({manifest.homepage}), then run `relabel fetch {manifest.name}` again:"
    wrong = any(isinstance(reason, CheckError) for reasons in failed.values() for reason in reasons)
    kind = CheckError if wrong else MissingError
    return kind("\n".join(problems), where=manifest.name, todo="\n".join([todo, *lines]))
