"""The folder of tables and pictures: an artefact, so that it is whole, and a changed byte in it is found.

Each kind of report (`cxc`, `eccv`) is written by itself; the files of the others, by their names `KIND.*`, are kept.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from relabel.errors import CheckError, MissingError
from relabel.progress import Progress
from relabel.store.artefact import WORK, build, disk_error
from relabel.store.atomic import void
from relabel.store.lock import alone
from relabel.store.manifest import Draft, Manifest, open_artefact
from relabel.store.work import Work

VERSION = 1
"""Goes up when pictures come to look different for the same tables."""


@dataclass(frozen=True)
class Files:
    """What is written of one kind.

    Attributes
    ----------
    texts : dict of str to str
        By file name, which starts with the kind and a dot.
    pictures : dict of str to callable
        By file name; each draws into the path it is given. A picture shows what the texts say.
    """

    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Callable[[Path], None]] = field(default_factory=dict)


def write_report(out: Path, kind: str, files: Files, judged: Mapping[str, Manifest], progress: Progress) -> None:
    """Write the files of one kind beside those of the others.

    Parameters
    ----------
    out : Path
        The folder, `report/SPLIT`.
    kind : str
    files : Files
    judged : mapping of str to Manifest
        The judgements that they show, by label.
    progress : Progress

    Raises
    ------
    PartialError
        On a full disk.
    """
    try:
        with alone(out.with_name(f"{out.name}.files"), out.parent / WORK, progress):
            kept = _others(out, kind)
            said = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.texts.items()}
            semantic = {"version": VERSION, "files": {**(kept.semantic["files"] if kept else {}), **said}}
            inputs = {name: value for name, value in (kept.inputs if kept else {}).items() if not _of(name, kind, "/")}
            inputs |= {f"{kind}/{label}": manifest.fingerprint for label, manifest in judged.items()}
            copied = [name for name in (kept.files if kept else {}) if not _of(name, kind, ".")]
            fill = partial(_fill, out, copied, files)
            build(out, Draft("report", out.name, semantic, inputs), fill, progress)
    except OSError as error:
        raise disk_error(error, out) from error


def _fill(out: Path, copied: list[str], files: Files, work: Work) -> None:
    for name in copied:
        work.file(name, partial(_copy, out / name))
    for name, text in files.texts.items():
        work.file(name, partial(_text, text))
    for name, draw in files.pictures.items():
        work.file(name, draw)


def _others(out: Path, kind: str) -> Manifest | None:
    """Read what is there of other kinds; None if there is nothing, or it is not whole."""
    try:
        manifest = open_artefact(out, "report")
    except (MissingError, CheckError):
        return None
    for name in [n for n in manifest.semantic["files"] if _of(n, kind, ".")]:
        del manifest.semantic["files"][name]
    return manifest


def _of(name: str, kind: str, mark: str) -> bool:
    return name.startswith(f"{kind}{mark}")


def _copy(source: Path, path: Path) -> None:
    shutil.copyfile(source, path)


def _text(text: str, path: Path) -> None:
    void(path.write_bytes(text.encode()))
