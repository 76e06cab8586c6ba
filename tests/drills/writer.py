"""A process that writes two versions of an artefact alternately: ``python -m tests.drills.writer OUT A B``.

It uses the build function of the stages on the files of two existing artefacts. It ends with its stdin, and prints how
often it put a version into place.
"""

from __future__ import annotations

import shutil
import sys
import threading
from functools import partial
from pathlib import Path

from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, Manifest, read_manifest
from relabel.store.workdir import Work


def fill(work: Work, folder: Path, manifest: Manifest) -> None:
    """Copy the files of an artefact."""
    for name, entry in manifest.files.items():
        work.file(name, lambda path, name=name: shutil.copyfile(folder / name, path) and None, entry.rows)  # type: ignore[misc]
    work.facts |= manifest.facts


def write(out: Path, folders: list[Path]) -> None:
    """Build the versions alternately until stdin ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    manifests, count = [read_manifest(folder) for folder in folders], 0
    while not ended.is_set():
        folder, manifest = folders[count % 2], manifests[count % 2]
        artefact = ArtefactSpec(manifest.kind, manifest.name, manifest.semantic, manifest.inputs)
        build(out, artefact, partial(fill, folder=folder, manifest=manifest))
        count += 1
        print(count, flush=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
