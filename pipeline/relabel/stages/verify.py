"""verify: every byte on disk read back against its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relabel import datasets
from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import SILENT, Progress
from relabel.store.artefact import WORK, foreign_files
from relabel.store.files import sha256_file
from relabel.store.manifest import MANIFEST, FileEntry, read_manifest

Fault = Literal["damaged", "missing", "stray", "unreadable"]
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
    `unfinished`: work of interrupted runs. It is no fault.
    """

    artefacts: int = 0
    fetched: int = 0
    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    def add(self, fault: Fault, file: object, expected: str, found: str, todo: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(fault, str(file), expected, found, todo))


@dataclass(frozen=True)
class _File:
    """One file to be read, with its accepted contents."""

    path: Path
    accepted: list[FileEntry]
    todo: str


def verify(paths: Sequence[Path], progress: Progress = SILENT) -> Findings:
    """Read back every artefact and every fetched file, and continue after errors.

    `paths`: folders: of labels, of fetched files, or of one artefact. `progress`: counts bytes.
    """
    findings, files = Findings(), list[_File]()
    for path in paths:
        if not path.is_dir():
            raise MissingError("no such folder", where=str(path), todo="Name a folder, or make labels first.")
        files += _walk(path, findings)
    with progress.bar("verify", sum(file.accepted[0].bytes for file in files), "bytes") as bar:
        for file in files:
            _read(file, findings)
            bar.advance(file.accepted[0].bytes)
    return findings


def _walk(top: Path, findings: Findings) -> Iterator[_File]:
    """Yield the files to read; add the problems that show without reading a file."""

    def unreadable(error: OSError) -> None:
        findings.add("unreadable", error.filename, "a folder", error.strerror or str(error), "Let it be read.")

    for name, inner, files in os.walk(top, onerror=unreadable, followlinks=True):
        folder = Path(name)
        inner.sort()
        if WORK in inner:
            inner.remove(WORK)
            works = sorted(path for path in (folder / WORK).iterdir() if path.is_dir())
            findings.unfinished += [f"{path}: of an interrupted run; the next one resumes it" for path in works]
        if MANIFEST in files:
            inner.clear()
            yield from _artefact(folder, findings)
        elif any(file.startswith("part-") and file.endswith(".parquet") for file in files):
            findings.add("missing", folder / MANIFEST, "the manifest of an artefact", "nothing", _AGAIN)
        elif folder.name in datasets.names():
            for known in datasets.load_manifest(folder.name).files:
                if known.name in files:
                    findings.fetched += 1
                    accepted = [FileEntry(content.sha256, content.bytes) for content in known.contents]
                    yield _File(folder / known.name, accepted, f"Delete it, then `relabel fetch {folder.name}`.")


def _artefact(folder: Path, findings: Findings) -> Iterator[_File]:
    try:
        manifest = read_manifest(folder)
    except CheckError as error:
        findings.add("damaged", folder / MANIFEST, "a manifest as it was written", error.problem, _AGAIN)
        return
    findings.artefacts += 1
    for name, entry in manifest.files.items():
        yield _File(folder / name, [entry], _AGAIN)
    for path in foreign_files(folder, manifest.files):
        findings.add("stray", path, "no such file", "a file that is in no manifest", "Delete it, or move it elsewhere.")


def _read(file: _File, findings: Findings) -> None:
    """Compare the content of one file with its manifest."""
    expected = " or ".join(f"sha256 {entry.sha256} ({entry.bytes} bytes)" for entry in file.accepted)
    try:
        found = FileEntry(sha256_file(file.path), file.path.stat().st_size)
    except FileNotFoundError:
        findings.add("missing", file.path, expected, "nothing", file.todo)
        return
    except OSError as error:
        findings.add("unreadable", file.path, expected, error.strerror or str(error), file.todo)
        return
    findings.files += 1
    findings.bytes += found.bytes
    if found not in file.accepted:
        findings.add("damaged", file.path, expected, f"sha256 {found.sha256} ({found.bytes} bytes)", file.todo)
