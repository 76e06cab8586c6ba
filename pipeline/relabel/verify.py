"""`relabel verify`: everything on disk read back against what is said of it, to the byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel import datasets
from relabel.datasets import DataFile
from relabel.errors import CheckError, MissingError
from relabel.progress import SILENT, Progress, Task
from relabel.store.artefact import WORK
from relabel.store.manifest import MANIFEST, Manifest, read_manifest, verb_of
from relabel.store.work import DONE, Work, strays

Fault = Literal["damaged", "missing", "stray"]
_CHUNK = 1 << 22
_OTHERS = {".gitignore"}  # files that DVC and people lay beside artefacts
_UNFINISHED = (".part", ".old")


@dataclass(frozen=True)
class Problem:
    """A file that is not as it should be.

    Attributes
    ----------
    fault : "damaged", "missing" or "stray"
        A stray file is named by no manifest.
    file : str
    expected, found : str
    todo : str
        What to do about it.
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
    """What reading everything back found.

    Attributes
    ----------
    artefacts, fetched, files, bytes : int
        Whole folders with a manifest; fetched files; all files that were read, and their size.
    problems : list of Problem
    unfinished : list of str
        Work that a run was not done with: no fault, and what is whole in it.
    """

    artefacts: int = 0
    fetched: int = 0
    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Check:
    """One file to be read: what it may be, by sha256 and size."""

    path: Path
    accepted: tuple[tuple[str, int], ...]
    todo: str


def verify(paths: Sequence[Path], data: Path, progress: Progress = SILENT) -> Findings:
    """Read back every artefact and every fetched file.

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
    """
    findings, checks = Findings(), []
    for path in paths:
        if not path.is_dir():
            raise MissingError("no such folder", where=str(path), todo="Name a folder, or make labels first.")
        if not any(other.resolve() in path.resolve().parents for other in paths):
            checks += list(_walk(path, data.resolve(), findings))
    total = sum(check.path.stat().st_size for check in checks if check.path.is_file())
    with progress.task("verify", total, "bytes") as task:
        for check in checks:
            _read(check, findings, task)
    return findings


def _walk(folder: Path, data: Path, findings: Findings) -> Iterator[_Check]:
    """List what is to be read below a folder; note what need not be read to be wrong."""
    if (folder / MANIFEST).is_file() and folder.parent.name != WORK:
        yield from _artefact(folder, findings)
        return
    known = _fetched(folder.resolve().name)
    for path in sorted(folder.iterdir()):
        if path.name == WORK:
            findings.unfinished += [line for work in sorted(path.iterdir()) for line in _work(work)]
        elif path.is_dir():
            yield from _walk(path, data, findings)
        elif path.name in known:
            findings.fetched += 1
            accepted = tuple((c.sha256, c.bytes) for c in known[path.name].contents)
            yield _Check(path, accepted, f"Delete it, then `relabel fetch {folder.resolve().name}`.")
        elif path.name.endswith(_UNFINISHED):
            findings.unfinished.append(f"{path}: left by a run that was killed; the next one removes it")
        elif path.name not in _OTHERS and data not in path.resolve().parents:
            findings.problems.append(_stray(path))


def _artefact(folder: Path, findings: Findings) -> Iterator[_Check]:
    try:
        manifest = read_manifest(folder)
    except CheckError as error:
        findings.files += 1
        expected, found = "a manifest as it was written", error.what
        findings.problems.append(Problem("damaged", str(folder / MANIFEST), expected, found, str(error.todo)))
        return
    findings.artefacts += 1
    findings.files += 1
    findings.bytes += (folder / MANIFEST).stat().st_size
    for name, entry in manifest.files.items():
        yield _Check(folder / name, ((entry.sha256, entry.bytes),), _again(manifest))
    if (folder / DONE).is_dir():
        findings.unfinished.append(f"{folder / DONE}: left by a run that was killed; the next one removes it")
    findings.problems += [_stray(path) for path in strays(folder, manifest) if path.name not in _OTHERS]


def _read(check: _Check, findings: Findings, task: Task) -> None:
    path, said = check.path, " or ".join(f"sha256 {s} ({n} bytes)" for s, n in check.accepted)
    try:
        with path.open("rb") as file:
            digest, size = hashlib.sha256(), 0
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                task.advance(len(chunk))
    except FileNotFoundError:
        findings.problems.append(Problem("missing", str(path), said, "nothing", check.todo))
        return
    except OSError as error:
        found = f"what cannot be read ({error.strerror})"
        findings.problems.append(Problem("damaged", str(path), said, found, check.todo))
        return
    findings.files += 1
    findings.bytes += size
    if (digest.hexdigest(), size) not in check.accepted:
        found = f"sha256 {digest.hexdigest()} ({size} bytes)"
        findings.problems.append(Problem("damaged", str(path), said, found, check.todo))


def _work(folder: Path) -> Iterator[str]:
    """Say what is whole in a work folder."""
    if not folder.is_dir():
        return
    if folder.name.endswith(_UNFINISHED):
        yield f"{folder}: left by a run that was killed; the next one removes it"
        return
    work = Work(folder)
    entries = work.entries()
    whole = [name for name, entry in entries.items() if _is(folder / name, entry.sha256)]
    there = sum(1 for name in os.listdir(folder) if name not in (DONE, MANIFEST))  # noqa: PTH208
    yield f"{folder}: unfinished, {len(whole)} of {there} files are whole; the next run goes on there"


def _is(path: Path, sha256: str) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _fetched(dataset: str) -> dict[str, DataFile]:
    """Files that a dataset of this name has."""
    if dataset not in datasets.names():
        return {}
    return {file.name: file for file in datasets.load_manifest(dataset).files}


def _stray(path: Path) -> Problem:
    return Problem("stray", str(path), "no such file", "one that no manifest names", "Delete it, or move it elsewhere.")


def _again(manifest: Manifest) -> str:
    return f"Run `relabel {verb_of(manifest.kind)}` again; only what is damaged is made anew."
