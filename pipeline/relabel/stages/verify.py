"""verify: every byte on disk read back against its manifest."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel import datasets
from relabel.core.errors import CheckError, MissingError, system_error
from relabel.core.layout import place_of
from relabel.core.runtime import SILENT, Progress, ProgressBar
from relabel.datasets import DataFile
from relabel.stages.hints import VERBS, build_command
from relabel.store.artefact import WORK
from relabel.store.input_index import Absent, Stale, check_references
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel.store.workdir import DONE, GITIGNORE, WRITTEN, Work, foreign_files

Fault = Literal["damaged", "missing", "stray", "unreadable"]
_CHUNK = 1 << 22
_UNFINISHED = (".part", ".old")
_TRAINING = "last.npz"  # in the folder of a training, which is no artefact


@dataclass(frozen=True)
class Problem:
    """A file or folder that differs from its manifest or has none.

    `fault`: a stray file is in no manifest.
    `expected`, `found`: expected and actual content, in words.
    `todo`: advice to the user.
    """

    fault: Fault
    file: str
    expected: str
    found: str
    todo: str

    def __str__(self) -> str:
        return f"{self.fault}: {self.file}: expected {self.expected}, found {self.found}. {self.todo}"


@dataclass
class Findings:
    """Result of a verification.

    `artefacts`, `fetched`, `files`, `bytes`: folders with a manifest; fetched files; all files that were read, and
        their size.
    `unfinished`: work of interrupted runs, with the number of complete files. It is no fault.
    `stale`: intact artefacts that were made from other inputs than the current ones. They are no fault.
    """

    artefacts: int = 0
    fetched: int = 0
    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Check:
    """One file to be read, with its accepted contents by sha256 and size."""

    path: Path
    accepted: tuple[tuple[str, int], ...]
    todo: str


def verify(paths: Sequence[Path], data: Path, progress: Progress = SILENT) -> Findings:
    """Read back every artefact and every fetched file, and continue after errors.

    Each folder is read once. A link to a folder is followed unless it leads to a folder that is read anyway.

    `paths`: folders: of labels, of fetched files, or of one artefact. `data`: folder of fetched files. Unknown files
    there belong to the user and are no fault. `progress`: counts bytes.
    """
    for path in paths:
        try:
            folder = stat.S_ISDIR(path.stat().st_mode)
        except FileNotFoundError:
            folder = False
        except OSError as error:
            raise system_error(error, path) from error
        if not folder:
            raise MissingError("no such folder", where=_shown(path), todo="Name a folder, or make labels first.")
    walk = _Walk(os.path.realpath(data), Findings())
    # A folder below another one of the list is reached from there.
    walk.all([path for path in paths if not any(_contains(other, path) for other in paths)])
    total = sum(_size(check.path) for check in walk.checks)
    with progress.bar("verify", total, "bytes") as bar:
        for check in walk.checks:
            _read(check, walk.findings, bar)
    # References are compared by absolute paths, and reported in the form in which the user wrote them.
    roots = {_absolute(path): path for path in paths}
    absent, stale = check_references(walk.artefacts, list(roots), walk.unread)
    walk.findings.problems += [_absent_problem(one, roots) for one in absent]
    walk.findings.stale += [_stale_line(one, roots) for one in stale]
    return walk.findings


@dataclass
class _Walk:
    """Walk over the folders that are verified.

    `data`: folder of fetched files, with links resolved.
    `findings`: receives the problems that show without reading a file.
    `artefacts`: by absolute folder.
    `unread`: absolute folders of artefacts whose manifest is damaged or missing.
    """

    data: str
    findings: Findings
    checks: list[_Check] = field(default_factory=list)
    artefacts: dict[Path, Manifest] = field(default_factory=dict)
    unread: list[Path] = field(default_factory=list)
    _visited: set[tuple[int, int]] = field(default_factory=set)

    def all(self, paths: Sequence[Path]) -> None:
        """Walk folders, and then the folders that links below them lead to."""
        # A stack and a queue rather than recursion: a tree may be deeper than Python's recursion limit.
        folders, links = list(reversed(paths)), list[Path]()
        while folders or links:
            folder = folders.pop() if folders else links.pop(0)
            # A link to a folder above itself would be walked without end.
            if folder.is_symlink() and folder not in paths and _contains(folder, folder.parent, same=True):
                self.findings.problems.append(_stray(folder, "a link to a folder that holds it"))
                continue
            try:
                # By device and inode, which are the same for all links to a folder.
                about = folder.stat()
                if (about.st_dev, about.st_ino) in self._visited:
                    continue
                self._visited.add((about.st_dev, about.st_ino))
                below = list(self._folder(folder))
            except OSError as error:
                self._unreadable(folder, error)
                continue
            links += [path for path in below if path.is_symlink()]
            folders += [path for path in reversed(below) if not path.is_symlink()]

    def _folder(self, folder: Path) -> Iterator[Path]:
        """Add the checks of a folder; yield the folders in it that are to be walked."""
        inner, files = list[Path](), list[Path]()
        for path in sorted(folder.iterdir()):
            try:
                is_folder = path.is_dir()
            except OSError as error:
                # The path is too long, or the folder may be listed but not entered.
                self._unreadable(path, error)
                continue
            if path.name == WORK:
                self._work(path)
            elif path.name != GITIGNORE:
                (inner if is_folder else files).append(path)
        names = {path.name for path in files}
        if MANIFEST in names and _is_file(folder / MANIFEST):
            self._artefact(folder)
            return
        if _TRAINING in names or self._without_manifest(folder, files, inner):
            return
        in_data, fetched = self._in_data(folder), _dataset_files(os.path.basename(os.path.realpath(folder)))  # noqa: PTH119
        for path in files:
            if path.name in fetched:
                self.findings.fetched += 1
                accepted = tuple((c.sha256, c.bytes) for c in fetched[path.name].contents)
                self.checks.append(_Check(path, accepted, f"Delete it, then `relabel fetch {folder.name}`."))
            elif path.name.endswith(_UNFINISHED):
                self._leftover(path)
            elif not in_data:
                self.findings.problems.append(_stray(path))
        yield from inner

    def _without_manifest(self, folder: Path, files: list[Path], inner: list[Path]) -> bool:
        """Report a missing manifest; return whether one is missing."""
        # Files with names that only relabel gives show that the folder was an artefact.
        written = [path for path in files if WRITTEN.fullmatch(path.name)]
        written += [path for path in inner if path.name == DONE]
        place = place_of(_absolute(folder))
        # At the place of an artefact, any file does, or even an empty folder: some artefacts have only a manifest.
        if place is not None and not self._in_data(folder):
            ignored = (MANIFEST, *_UNFINISHED)
            written = written or [path for path in files if not path.name.endswith(ignored)]
            if {*os.listdir(folder)} <= {GITIGNORE}:  # noqa: PTH208
                written = [folder]
        if written:
            kind = "an artefact" if place is None else f"{place.kind} {place.names[-1] if place.names else ''}".strip()
            actual = f"{_shown(written[0].relative_to(folder))} without it"
            actual = "an empty folder" if written == [folder] else actual
            self.unread.append(_absolute(folder))
            todo = "Delete the folder, or move your own files away, and build it again."
            problem = Problem("missing", _shown(folder / MANIFEST), f"the manifest of {kind}", actual, todo)
            self.findings.problems.append(problem)
        return bool(written)

    def _artefact(self, folder: Path) -> None:
        path, findings = folder / MANIFEST, self.findings
        try:
            manifest = read_manifest(folder)
        except CheckError as error:
            findings.files += 1
            expected = "a manifest as it was written"
            findings.problems.append(Problem("damaged", _shown(path), expected, error.problem, str(error.todo)))
            self.unread.append(_absolute(folder))
            return
        except MissingError:
            # Removed since the folder was listed.
            return
        except OSError as error:
            self._unreadable(path, error)
            return
        findings.artefacts += 1
        findings.files += 1
        findings.bytes += _size(path)
        self.artefacts[_absolute(folder)] = manifest
        for name, entry in manifest.files.items():
            self.checks.append(_Check(folder / name, ((entry.sha256, entry.bytes),), _again(folder, manifest)))
        if (folder / DONE).is_dir():
            self._leftover(folder / DONE)
        findings.problems += [_stray(path) for path in foreign_files(folder, manifest.files)]

    def _work(self, folder: Path) -> None:
        """Report unfinished work. A run that works there may end at any time and remove the folder."""
        try:
            for path in sorted(folder.iterdir()):
                if path.is_dir() and path.name.endswith(_UNFINISHED):
                    self._leftover(path)
                # A run that failed before its first file leaves an empty folder, which is nothing to report.
                elif path.is_dir() and any(file.is_file() for file in path.rglob("*")):
                    self.findings.unfinished.append(_unfinished(path))
        except FileNotFoundError:
            return
        except OSError as error:
            self._unreadable(folder, error)

    def _unreadable(self, path: Path, error: OSError) -> None:
        actual, todo = error.strerror or str(error), "Change its permissions, or move it elsewhere."
        # The error may concern a file below `path`.
        place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
        expected = "a folder or file that can be read"
        self.findings.problems.append(Problem("unreadable", _shown(place), expected, actual, todo))

    def _leftover(self, path: Path) -> None:
        self.findings.unfinished.append(f"{_shown(path)}: left by a run that was killed; the next one removes it")

    def _in_data(self, folder: Path) -> bool:
        real = os.path.realpath(folder)
        return real == self.data or real.startswith(os.path.join(self.data, ""))  # noqa: PTH118


def _read(check: _Check, findings: Findings, bar: ProgressBar) -> None:
    """Compare the content of one file with its manifest."""
    path, expected = check.path, " or ".join(f"sha256 {s} ({n} bytes)" for s, n in check.accepted)

    def note(fault: Fault, found: str) -> None:
        findings.problems.append(Problem(fault, _shown(path), expected, found, check.todo))

    try:
        # Opening a pipe may block forever.
        if not stat.S_ISREG(path.stat().st_mode):
            note("damaged", "a folder, pipe, socket or device")
            return
        with path.open("rb") as file:
            digest, size = hashlib.sha256(), 0
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                bar.advance(len(chunk))
    except FileNotFoundError:
        note("missing", "nothing")
        return
    except (OSError, ValueError) as error:
        # ValueError: a name with a zero byte.
        note("unreadable", f"a file that cannot be read ({getattr(error, 'strerror', None) or error})")
        return
    findings.files += 1
    findings.bytes += size
    if (digest.hexdigest(), size) not in check.accepted:
        note("damaged", f"sha256 {digest.hexdigest()} ({size} bytes)")


def _unfinished(folder: Path) -> str:
    """Return a line on the number of complete files in a work folder."""
    entries = Work(folder).entries()
    complete = [name for name, entry in entries.items() if _has_sha256(folder / name, entry.sha256)]
    count = sum(1 for path in folder.iterdir() if path.name not in (DONE, MANIFEST))
    state = f"unfinished, {len(complete)} of {count} files are complete"
    return f"{_shown(folder)}: {state}; a run with the same parameters resumes it"


def _has_sha256(path: Path, sha256: str) -> bool:
    if not _is_file(path):
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _is_file(path: Path) -> bool:
    # The name may be too long.
    with suppress(OSError):
        return path.is_file()
    return False


def _size(path: Path) -> int:
    with suppress(OSError, ValueError):
        return path.stat().st_size
    return 0


def _contains(folder: Path, path: Path, same: bool = False) -> bool:
    """Return whether a folder contains a path, after links are resolved; `same` accepts equal paths as well."""
    real, other = os.path.realpath(folder), os.path.realpath(path)
    return (same and real == other) or (real != other and other.startswith(os.path.join(real, "")))  # noqa: PTH118


def _dataset_files(dataset: str) -> dict[str, DataFile]:
    """Return the files of a dataset by name; none if there is no such dataset."""
    if dataset not in datasets.names():
        return {}
    return {file.name: file for file in datasets.load_manifest(dataset).files}


def _stray(path: Path, found: str = "a file that is in no manifest") -> Problem:
    return Problem("stray", _shown(path), "no such file", found, "Delete it, or move it elsewhere.")


def _absent_problem(absent: Absent, roots: Mapping[Path, Path]) -> Problem:
    more = f" (and {len(absent.referrers) - 1} more)" if len(absent.referrers) > 1 else ""
    expected = f"the {absent.kind} that {_relative(absent.referrers[0], roots)}{more} was made from"
    folder = _relative(absent.folder, roots)
    todo = f"Build it again with {build_command(absent.kind, Path(folder))}, or ignore this if you deleted it."
    return Problem("missing", folder, expected, "nothing", todo)


def _stale_line(stale: Stale, roots: Mapping[Path, Path]) -> str:
    state = f"intact, but made from another {' and '.join(stale.inputs)} than the current one"
    folder = _relative(stale.folder, roots)
    update = build_command(stale.kind, Path(folder))
    return f"stale: {folder}: {state}; {update} brings it up to date"


def _relative(folder: Path, roots: Mapping[Path, Path]) -> str:
    """Return an absolute folder in the form in which the user wrote the root that contains it."""
    root = next(path for path in (folder, *folder.parents) if path in roots)
    return _shown(roots[root] / folder.relative_to(root))


def _absolute(path: Path) -> Path:
    """Return an absolute path without resolving links."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _again(folder: Path, manifest: Manifest) -> str:
    maker = build_command(manifest.kind, folder) if manifest.kind in VERBS else "the program that wrote it"
    return f"Run {maker} again; it rebuilds only damaged files."


def _shown(path: Path) -> str:
    """Return a path as printable text; characters that are no text or control a terminal become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(path))
