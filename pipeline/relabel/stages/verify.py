"""verify: reads every file on disk and compares it with its manifest."""

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
from relabel.store.manifest import MANIFEST, FileEntry, read_manifest
from relabel_train.files import sha256_file, size_of

_AGAIN = "Delete its folder and build it again."


@dataclass(frozen=True)
class Problem:
    """A file that differs from its manifest or is not in any.

    `fault`: a stray file is in the folder of an artefact, but not in its manifest.
    `found`: the difference, and the next step.
    """

    fault: Literal["damaged", "missing", "stray", "unreadable"]
    file: str
    found: str

    def __str__(self) -> str:
        return f"{self.fault}: {self.file}: {self.found}"


@dataclass
class Findings:
    """Result of a verification.

    `artefacts`, `fetched`, `files`, `bytes`: numbers of folders with a manifest, of fetched files, and of all files
        that were read, and their size.
    """

    artefacts: int = 0
    fetched: int = 0
    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)


_Wanted = tuple[Path, list[FileEntry], str]
"""A file to read, its accepted contents, and the next step if it differs from all of them."""


def verify(paths: Sequence[Path], progress: Progress = SILENT) -> Findings:
    """Verify every artefact and every fetched file. Errors are collected in the result.

    `paths`: folders of labels, of fetched files, or of one artefact. `progress`: shows the number of bytes.
    """
    findings, files, seen = Findings(), list[_Wanted](), set[tuple[int, int]]()
    for path in paths:
        if not path.is_dir():
            raise MissingError("no such folder", where=str(path), hint="Pass another folder, or build labels first.")
        files += _walk(path, findings, seen)
    with progress.bar("verify", sum(accepted[0].bytes for _, accepted, _ in files), "bytes") as bar:
        for file, accepted, hint in files:
            _read(file, accepted, hint, findings)
            bar.advance(accepted[0].bytes)
    return findings


def _walk(top: Path, findings: Findings, seen: set[tuple[int, int]]) -> Iterator[_Wanted]:
    """Yield the files to read; add the problems that can be detected without reading a file.

    `seen`: device and inode of each folder so far, to visit a folder only once if there are links to it.
    """

    def unreadable(error: OSError) -> None:
        findings.problems.append(Problem("unreadable", error.filename, str(error.strerror)))

    for name, inner, files in os.walk(top, onerror=unreadable, followlinks=True):
        folder = Path(name)
        about = folder.stat()
        if (about.st_dev, about.st_ino) in seen:
            inner.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        inner.sort()
        # Skip unfinished work of an interrupted run.
        if WORK in inner:
            inner.remove(WORK)
        if MANIFEST in files:
            inner.clear()
            yield from _artefact(folder, findings)
        elif any(file.startswith("part-") and file.endswith(".parquet") for file in files):
            findings.problems.append(Problem("missing", str(folder / MANIFEST), f"shards have no manifest. {_AGAIN}"))
        elif folder.name in datasets.names():
            for entry in datasets.load_manifest(folder.name).files:
                if entry.name in files and entry.sha256:
                    findings.fetched += 1
                    accepted = [FileEntry(content.sha256, content.bytes) for content in entry.contents]
                    yield folder / entry.name, accepted, f"Delete it, then `relabel fetch {folder.name}`."


def _artefact(folder: Path, findings: Findings) -> Iterator[_Wanted]:
    try:
        manifest = read_manifest(folder)
    except CheckError as error:
        findings.problems.append(Problem("damaged", str(folder / MANIFEST), f"{error.problem}. {_AGAIN}"))
        return
    findings.artefacts += 1
    for name, entry in manifest.files.items():
        yield folder / name, [entry], _AGAIN
    for path in foreign_files(folder, manifest.files):
        findings.problems.append(Problem("stray", str(path), "not in the manifest. Delete it, or move it elsewhere."))


def _read(file: Path, accepted: list[FileEntry], hint: str, findings: Findings) -> None:
    """Compare the content of one file with the accepted contents."""
    try:
        size = size_of(file)
        # The hash is not needed if the size differs.
        actual = FileEntry(sha256_file(file) if any(size == entry.bytes for entry in accepted) else "?", size)
    except FileNotFoundError:
        findings.problems.append(Problem("missing", str(file), hint))
    except OSError as error:
        findings.problems.append(Problem("unreadable", str(file), f"{error.strerror}. {hint}"))
    else:
        findings.files += 1
        findings.bytes += actual.bytes
        if actual not in accepted:
            difference = f"expected {' or '.join(map(str, accepted))}, found {actual}. {hint}"
            findings.problems.append(Problem("damaged", str(file), difference))
