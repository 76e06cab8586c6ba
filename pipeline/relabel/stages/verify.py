"""verify: every byte on disk read back against its manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
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
from relabel.store.files import is_temporary
from relabel.store.input_index import Absent, Stale, check_references
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel.store.workdir import DONE, GITIGNORE, WRITTEN, Work, foreign_files

Fault = Literal["damaged", "missing", "stray", "unreadable"]
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Problem:
    """A file or folder that differs from its manifest or has none.

    `fault`: a stray file lies in the folder of an artefact whose manifest does not name it.
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

    Each folder is read once, also if several links lead to it.

    `paths`: folders: of labels, of fetched files, or of one artefact. `data`: folder of fetched files. `progress`:
    counts bytes.
    """
    walk = _Walk(data.resolve(), Findings())
    for path in paths:
        # Unlike Path.is_dir, it accepts names that are too long.
        if not os.path.isdir(path):  # noqa: PTH112
            raise MissingError("no such folder", where=_shown(path), todo="Name a folder, or make labels first.")
        try:
            walk.all(path)
        except OSError as error:
            raise system_error(error, path) from error
    with progress.bar("verify", sum(check.accepted[0][1] for check in walk.checks), "bytes") as bar:
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

    data: Path
    findings: Findings
    checks: list[_Check] = field(default_factory=list)
    artefacts: dict[Path, Manifest] = field(default_factory=dict)
    unread: list[Path] = field(default_factory=list)
    _visited: set[tuple[int, int]] = field(default_factory=set)

    def all(self, top: Path) -> None:
        """Walk a folder and the folders in it."""
        for name, inner, files in os.walk(top, onerror=self._unreadable, followlinks=True):
            folder = Path(name)
            # By device and inode, which are the same for all links to a folder.
            about = folder.stat()
            if (about.st_dev, about.st_ino) in self._visited:
                inner.clear()
                continue
            self._visited.add((about.st_dev, about.st_ino))
            inner.sort()
            if MANIFEST in files:
                self._artefact(folder)
                inner.clear()
            elif self._lacks_manifest(folder, inner, files):
                inner.clear()
            else:
                self._fetched(folder, files)
            if WORK in inner:
                inner.remove(WORK)
                self._work(folder / WORK)

    def _artefact(self, folder: Path) -> None:
        path, findings = folder / MANIFEST, self.findings
        try:
            # Opening a pipe may block forever.
            if not path.is_file():
                raise CheckError("a link to nothing, a pipe, socket or device", todo="Delete the folder and run again.")
            manifest = read_manifest(folder)
        except CheckError as error:
            self.unread.append(_absolute(folder))
            expected = "a manifest as it was written"
            findings.problems.append(Problem("damaged", _shown(path), expected, error.problem, str(error.todo)))
            return
        except OSError as error:
            self._unreadable(error)
            return
        findings.artefacts += 1
        findings.files += 1
        findings.bytes += path.stat().st_size
        self.artefacts[_absolute(folder)] = manifest
        for name, entry in manifest.files.items():
            self.checks.append(_Check(folder / name, ((entry.sha256, entry.bytes),), _again(folder, manifest)))
        for extra in foreign_files(folder, manifest.files):
            found, todo = "a file that is in no manifest", "Delete it, or move it elsewhere."
            findings.problems.append(Problem("stray", _shown(extra), "no such file", found, todo))

    def _lacks_manifest(self, folder: Path, inner: list[str], files: list[str]) -> bool:
        """Report a missing manifest; return whether one is missing."""
        real = folder.resolve()
        place = None if self.data in (real, *real.parents) else place_of(_absolute(folder))
        # Files with names that only relabel gives show that the folder was an artefact.
        lost = DONE in inner or any(WRITTEN.fullmatch(name) for name in files)
        # At the place of an artefact, any file does, or even an empty folder: some artefacts have only a manifest.
        if place is not None:
            lost |= not inner or any(name != GITIGNORE and not is_temporary(name) for name in files)
        if lost:
            kind = "an artefact" if place is None else f"{place.kind} {place.names[-1] if place.names else ''}".strip()
            self.unread.append(_absolute(folder))
            todo = "Delete the folder, or move your own files away, and build it again."
            problem = Problem("missing", _shown(folder / MANIFEST), f"the manifest of {kind}", "nothing", todo)
            self.findings.problems.append(problem)
        return lost

    def _fetched(self, folder: Path, files: list[str]) -> None:
        known = _dataset_files(folder.resolve().name)
        for name in sorted(known.keys() & set(files)):
            self.findings.fetched += 1
            accepted = tuple((c.sha256, c.bytes) for c in known[name].contents)
            self.checks.append(_Check(folder / name, accepted, f"Delete it, then `relabel fetch {folder.name}`."))

    def _work(self, folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            # The name of a folder that was replaced ends in .old.
            if path.is_dir() and path.suffix != ".old":
                state = f"unfinished, {len(Work(path).entries())} files are complete"
                self.findings.unfinished.append(f"{_shown(path)}: {state}; a run with the same parameters resumes it")

    def _unreadable(self, error: OSError) -> None:
        actual, todo = error.strerror or str(error), "Change its permissions, or move it elsewhere."
        place = Path(os.fsdecode(error.filename))
        problem = Problem("unreadable", _shown(place), "a folder or file that can be read", actual, todo)
        self.findings.problems.append(problem)


def _read(check: _Check, findings: Findings, bar: ProgressBar) -> None:
    """Compare the content of one file with its manifest."""
    path, expected = check.path, " or ".join(f"sha256 {s} ({n} bytes)" for s, n in check.accepted)

    def note(fault: Fault, found: str) -> None:
        findings.problems.append(Problem(fault, _shown(path), expected, found, check.todo))

    try:
        # Opening a pipe may block forever.
        if path.exists() and not path.is_file():
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
    except OSError as error:
        note("unreadable", f"a file that cannot be read ({error.strerror or error})")
        return
    findings.files += 1
    findings.bytes += size
    if (digest.hexdigest(), size) not in check.accepted:
        note("damaged", f"sha256 {digest.hexdigest()} ({size} bytes)")


def _dataset_files(dataset: str) -> dict[str, DataFile]:
    """Return the files of a dataset by name; none if there is no such dataset."""
    if dataset not in datasets.names():
        return {}
    return {file.name: file for file in datasets.load_manifest(dataset).files}


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
