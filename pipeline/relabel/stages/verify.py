"""verify: every byte on disk read back against its manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel import datasets
from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import SILENT, Progress, ProgressBar
from relabel.store.artefact import WORK, foreign_files
from relabel.store.manifest import MANIFEST, read_manifest
from relabel.store.workdir import Work

Fault = Literal["damaged", "missing", "stray", "unreadable"]
_CHUNK = 1 << 22
_AGAIN = "Delete its folder and build it again."


@dataclass(frozen=True)
class Problem:
    """A file that differs from its manifest, or belongs to none.

    `fault`: a stray file lies in the folder of an artefact whose manifest does not name it.
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
    """

    artefacts: int = 0
    fetched: int = 0
    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Check:
    """One file to be read, with its accepted contents by sha256 and size."""

    path: Path
    accepted: tuple[tuple[str, int], ...]
    todo: str


def verify(paths: Sequence[Path], progress: Progress = SILENT) -> Findings:
    """Read back every artefact and every fetched file, and continue after errors.

    `paths`: folders: of labels, of fetched files, or of one artefact. `progress`: counts bytes.
    """
    findings, checks = Findings(), list[_Check]()
    for path in paths:
        if not path.is_dir():
            raise MissingError("no such folder", where=str(path), todo="Name a folder, or make labels first.")
        checks += _walk(path, findings)
    with progress.bar("verify", sum(check.accepted[0][1] for check in checks), "bytes") as bar:
        for check in checks:
            if problem := _read(check, findings, bar):
                findings.problems.append(problem)
    return findings


def _walk(top: Path, findings: Findings) -> Iterator[_Check]:
    """Yield the files to read; add the problems that show without reading a file."""

    def note(error: OSError) -> None:
        problem = Problem(
            "unreadable", str(error.filename), "a folder", error.strerror or str(error), "Let it be read."
        )
        findings.problems.append(problem)

    for name, inner, files in os.walk(top, onerror=note, followlinks=True):
        folder = Path(name)
        inner.sort()
        if WORK in inner:
            inner.remove(WORK)
            findings.unfinished += _unfinished(folder / WORK)
        if MANIFEST in files:
            inner.clear()
            yield from _artefact(folder, findings)
        elif any(file.startswith("part-") and file.endswith(".parquet") for file in files):
            problem = Problem("missing", str(folder / MANIFEST), "the manifest of an artefact", "nothing", _AGAIN)
            findings.problems.append(problem)
        elif folder.name in datasets.names():
            known = {file.name: file for file in datasets.load_manifest(folder.name).files}
            for file in sorted(known.keys() & set(files)):
                findings.fetched += 1
                accepted = tuple((content.sha256, content.bytes) for content in known[file].contents)
                yield _Check(folder / file, accepted, f"Delete it, then `relabel fetch {folder.name}`.")


def _artefact(folder: Path, findings: Findings) -> Iterator[_Check]:
    try:
        manifest = read_manifest(folder)
    except CheckError as error:
        path = str(folder / MANIFEST)
        findings.problems.append(Problem("damaged", path, "a manifest as it was written", error.problem, _AGAIN))
        return
    findings.artefacts += 1
    for name, entry in manifest.files.items():
        yield _Check(folder / name, ((entry.sha256, entry.bytes),), _AGAIN)
    for extra in foreign_files(folder, manifest.files):
        todo = "Delete it, or move it elsewhere."
        findings.problems.append(Problem("stray", str(extra), "no such file", "a file that is in no manifest", todo))


def _unfinished(folder: Path) -> list[str]:
    """Describe the work of interrupted runs; the name of a folder that was replaced ends in .old."""
    works = sorted(path for path in folder.iterdir() if path.is_dir() and path.suffix != ".old")
    return [f"{path}: unfinished, {len(Work(path).names())} files are complete; a run resumes it" for path in works]


def _read(check: _Check, findings: Findings, bar: ProgressBar) -> Problem | None:
    """Compare the content of one file with its manifest."""
    expected = " or ".join(f"sha256 {sha256} ({size} bytes)" for sha256, size in check.accepted)
    digest, size = hashlib.sha256(), 0
    try:
        with check.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                bar.advance(len(chunk))
    except FileNotFoundError:
        return Problem("missing", str(check.path), expected, "nothing", check.todo)
    except OSError as error:
        return Problem("unreadable", str(check.path), expected, error.strerror or str(error), check.todo)
    findings.files += 1
    findings.bytes += size
    if (digest.hexdigest(), size) in check.accepted:
        return None
    return Problem("damaged", str(check.path), expected, f"sha256 {digest.hexdigest()} ({size} bytes)", check.todo)
