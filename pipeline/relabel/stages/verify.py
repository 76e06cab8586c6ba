"""`relabel verify`: everything on disk read back against its manifest, to the byte."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel import datasets
from relabel.core.errors import CheckError, MissingError, system_error
from relabel.core.layout import place_of
from relabel.core.progress import SILENT, Progress, ProgressBar
from relabel.datasets import DataFile
from relabel.store.artefact import WORK
from relabel.store.input_index import Absent, Stale, check_references
from relabel.store.manifest import MANIFEST, VERBS, Manifest, read_manifest, verb_of
from relabel.store.workdir import DONE, GITIGNORE, WRITTEN, Work, foreign_files

Fault = Literal["damaged", "missing", "stray", "unreadable"]
_CHUNK = 1 << 22
_UNFINISHED = (".part", ".old")
_TRAINING = "last.npz"  # lies in the folder of a training, which is no artefact


@dataclass(frozen=True)
class Problem:
    """A file or folder that is not as it should be.

    Attributes
    ----------
    fault : "damaged", "missing", "stray" or "unreadable"
        A stray file is named by no manifest.
    file : str
    expected, found : str
    todo : str
        The advice to the user.
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
    """The outcome of reading everything back.

    Attributes
    ----------
    artefacts, fetched, files, bytes : int
        Whole folders with a manifest; fetched files; all files that were read, and their size.
    problems : list of Problem
    unfinished : list of str
        Work that a run was not done with: no fault, and what is whole in it.
    stale : list of str
        Artefacts that are whole and were made from others than those that are there now: no fault.
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
    """One file to be read: its accepted contents, by sha256 and size."""

    path: Path
    accepted: tuple[tuple[str, int], ...]
    todo: str


def verify(paths: Sequence[Path], data: Path, progress: Progress = SILENT) -> Findings:
    """Read back every artefact and every fetched file; go on after whatever cannot be read.

    Each folder is read once: a link to a folder is followed, unless it leads to one that is read anyway.

    Parameters
    ----------
    paths : sequence of Path
        Folders: of labels, of fetched files, or of one artefact.
    data : Path
        Folder of fetched files: files there that nothing is known of are the user's own, and no fault.
    progress : Progress
        Counts bytes.

    Raises
    ------
    MissingError
        If a path is no folder.
    UsageError
        If there can be no such path.
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
    walk.all([path for path in paths if not any(_above(other, path) for other in paths)])
    total = sum(_size(check.path) for check in walk.checks)
    with progress.bar("verify", total, "bytes") as bar:
        for check in walk.checks:
            _read(check, walk.findings, bar)
    given = {_absolute(path): path for path in paths}
    absent, stale = check_references(walk.artefacts, list(given), walk.unread)
    walk.findings.problems += [_absent(one, given) for one in absent]
    walk.findings.stale += [_stale(one, given) for one in stale]
    return walk.findings


@dataclass
class _Walk:
    """The folders below those that are verified.

    Attributes
    ----------
    data : str
        Folder of fetched files, without links.
    findings : Findings
        Gets the problems for which no file needs to be read.
    checks : list of _Check
    artefacts : dict of Path to Manifest
        By absolute folder.
    unread : list of Path
        Absolute folders of artefacts whose manifest is damaged or lost.
    """

    data: str
    findings: Findings
    checks: list[_Check] = field(default_factory=list)
    artefacts: dict[Path, Manifest] = field(default_factory=dict)
    unread: list[Path] = field(default_factory=list)
    _visited: set[tuple[int, int]] = field(default_factory=set)

    def all(self, paths: Sequence[Path]) -> None:
        """Walk folders, and after them the folders that links below them lead to."""
        folders, links = list(reversed(paths)), list[Path]()
        while folders or links:
            folder = folders.pop() if folders else links.pop(0)
            if folder.is_symlink() and folder not in paths and _above(folder, folder.parent, same=True):
                self.findings.problems.append(_stray(folder, "a link to a folder that holds it"))
                continue
            try:
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
        """List the checks of a folder; yield the folders in it that are to be walked."""
        inner, files = list[Path](), list[Path]()
        for path in sorted(folder.iterdir()):
            try:
                is_folder = path.is_dir()
            except OSError as error:  # a path that is too long, a folder that may be listed and not entered
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
        in_data, known = self._in_data(folder), _fetched(os.path.basename(os.path.realpath(folder)))  # noqa: PTH119
        for path in files:
            if path.name in known:
                self.findings.fetched += 1
                accepted = tuple((c.sha256, c.bytes) for c in known[path.name].contents)
                self.checks.append(_Check(path, accepted, f"Delete it, then `relabel fetch {folder.name}`."))
            elif path.name.endswith(_UNFINISHED):
                self._left(path)
            elif not in_data:
                self.findings.problems.append(_stray(path))
        yield from inner

    def _without_manifest(self, folder: Path, files: list[Path], inner: list[Path]) -> bool:
        """Note a manifest that lacks; return whether one does."""
        written = [path for path in files if WRITTEN.fullmatch(path.name)]
        written += [path for path in inner if path.name == DONE]
        place = place_of(_absolute(folder))
        if place is not None and not self._in_data(folder):
            others = (MANIFEST, *_UNFINISHED)
            written = written or [path for path in files if not path.name.endswith(others)]
            if {*os.listdir(folder)} <= {GITIGNORE}:  # noqa: PTH208  (some artefacts consist of their manifest alone)
                written = [folder]
        if written:
            kind = "an artefact" if place is None else f"{place.kind} {place.names[-1] if place.names else ''}".strip()
            expected, found = f"the manifest of {kind}", f"{_shown(written[0].relative_to(folder))} without it"
            found = "an empty folder" if written == [folder] else found
            self.unread.append(_absolute(folder))
            todo = "Delete the folder, or move your own files away, and make it again."
            problem = Problem("missing", _shown(folder / MANIFEST), expected, found, todo)
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
        except MissingError:  # taken away since the folder was listed
            return
        except OSError as error:
            self._unreadable(path, error)
            return
        findings.artefacts += 1
        findings.files += 1
        findings.bytes += _size(path)
        self.artefacts[_absolute(folder)] = manifest
        for name, entry in manifest.files.items():
            self.checks.append(_Check(folder / name, ((entry.sha256, entry.bytes),), _again(manifest)))
        if (folder / DONE).is_dir():
            self._left(folder / DONE)
        findings.problems += [_stray(path) for path in foreign_files(folder, manifest.files)]

    def _work(self, folder: Path) -> None:
        """Note work that is not done; a run that works there may end at any time."""
        try:
            for path in sorted(folder.iterdir()):
                if path.is_dir() and path.name.endswith(_UNFINISHED):
                    self._left(path)
                elif path.is_dir():
                    self.findings.unfinished.append(_unfinished(path))
        except FileNotFoundError:
            return
        except OSError as error:
            self._unreadable(folder, error)

    def _unreadable(self, path: Path, error: OSError) -> None:
        found, todo = error.strerror or str(error), "Change its permissions, or move it elsewhere."
        place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
        kind = "a folder or file that can be read"
        self.findings.problems.append(Problem("unreadable", _shown(place), kind, found, todo))

    def _left(self, path: Path) -> None:
        self.findings.unfinished.append(f"{_shown(path)}: left by a run that was killed; the next one removes it")

    def _in_data(self, folder: Path) -> bool:
        real = os.path.realpath(folder)
        return real == self.data or real.startswith(os.path.join(self.data, ""))  # noqa: PTH118


def _read(check: _Check, findings: Findings, bar: ProgressBar) -> None:
    path, expected = check.path, " or ".join(f"sha256 {s} ({n} bytes)" for s, n in check.accepted)

    def note(fault: Fault, found: str) -> None:
        findings.problems.append(Problem(fault, _shown(path), expected, found, check.todo))

    try:
        if not stat.S_ISREG(path.stat().st_mode):
            note("damaged", "a folder, pipe, socket or device")  # to open a pipe may never end
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
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        note("unreadable", f"a file that cannot be read ({getattr(error, 'strerror', None) or error})")
        return
    findings.files += 1
    findings.bytes += size
    if (digest.hexdigest(), size) not in check.accepted:
        note("damaged", f"sha256 {digest.hexdigest()} ({size} bytes)")


def _unfinished(folder: Path) -> str:
    """Say how much is whole in a work folder."""
    entries = Work(folder).entries()
    whole = [name for name, entry in entries.items() if _is(folder / name, entry.sha256)]
    there = sum(1 for path in folder.iterdir() if path.name not in (DONE, MANIFEST))
    return f"{_shown(folder)}: unfinished, {len(whole)} of {there} files are whole; a run of these parameters goes on"


def _is(path: Path, sha256: str) -> bool:
    if not _is_file(path):
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def _above(folder: Path, path: Path, same: bool = False) -> bool:
    """Return whether a folder holds a path, however both are written; also if they are the same, where asked."""
    real, other = os.path.realpath(folder), os.path.realpath(path)
    return (same and real == other) or (real != other and other.startswith(os.path.join(real, "")))  # noqa: PTH118


def _fetched(dataset: str) -> dict[str, DataFile]:
    """Files that a dataset of this name has."""
    if dataset not in datasets.names():
        return {}
    return {file.name: file for file in datasets.load_manifest(dataset).files}


def _stray(path: Path, found: str = "one that no manifest names") -> Problem:
    return Problem("stray", _shown(path), "no such file", found, "Delete it, or move it elsewhere.")


def _absent(absent: Absent, given: Mapping[Path, Path]) -> Problem:
    more = f" (and {len(absent.referrers) - 1} more)" if len(absent.referrers) > 1 else ""
    expected = f"the {absent.kind} that {_as_given(absent.referrers[0], given)}{more} was made from"
    todo = f"Make it again with `relabel {verb_of(absent.kind)}`, or ignore this if you deleted it."
    return Problem("missing", _as_given(absent.folder, given), expected, "nothing", todo)


def _stale(stale: Stale, given: Mapping[Path, Path]) -> str:
    made = f"whole, and made from another {' and '.join(stale.inputs)} than the one that is there"
    verb = f"`relabel {verb_of(stale.kind)}`"
    return f"stale: {_as_given(stale.folder, given)}: {made}; {verb} brings it up to date"


def _as_given(folder: Path, given: Mapping[Path, Path]) -> str:
    """Return an absolute folder in the form in which the user named the folder that holds it."""
    base = next(path for path in (folder, *folder.parents) if path in given)
    return _shown(given[base] / folder.relative_to(base))


def _absolute(path: Path) -> Path:
    """Return an absolute path in which links stand as they are."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _again(manifest: Manifest) -> str:
    command = f"`relabel {verb_of(manifest.kind)}`" if manifest.kind in VERBS else "the program that wrote it"
    return f"Run {command} again; only damaged files are made again."


def _shown(path: Path) -> str:
    """Return a path as text that can be printed: what is no text, or would act on a terminal, as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(path))
