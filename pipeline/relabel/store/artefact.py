"""Artefacts: folders of files with a manifest, built in a work folder and moved into place when complete.

The work folder lies beside the artefact, on the same file system, so that a rename moves it. Its name contains the
fingerprint, so that work is never resumed under other inputs or parameters. A tool that deletes the artefact before a
run, as DVC does, deletes no work.

A lock admits one run at a time to an artefact. The kernel's lock (flock) ends with the process that holds it, even if
that process is killed.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from pathlib import Path
from typing import Any

from relabel.core.errors import FULL, CheckError, MissingError, RelabelError, UsageError, system_error
from relabel.core.runtime import SILENT, Progress
from relabel.store.files import make_folder, sync_folder, write_text
from relabel.store.manifest import MANIFEST, MODELS, Manifest, Spec, open_artefact, read_manifest
from relabel.store.workdir import Work

Inputs = dict[str, str | Callable[[], str]]
"""Identities of the inputs of an artefact by name, or functions that return them."""
PARAMETERS = "parameters"
"""Entry of a manifest's `provenance`: the parameters as a user wrote them."""
WORK = ".work"
"""Name of the folder beside the artefacts that holds their work folders."""
GITIGNORE = ".gitignore"
"""Name of a file that DVC writes beside artefacts."""
_OLD = ".old"
_LIBRARIES = ("numpy", "pyarrow", "torch", "sentence_transformers", "openvino", "faiss", "numba")
"""Libraries whose versions a manifest records, if the process that collected the files had them loaded."""
# torch's writer reports the position in the archive and drops the reason of the system.
_FULL_DISK = (*map(os.strerror, FULL), "PytorchStreamWriter failed", "inline_container.cc")
_PATIENCE = 1.0  # seconds of waiting before a note is shown


@dataclass(frozen=True)
class Recipe:
    """What an artefact is and how its files are written.

    `config`: returns the parameters that can change a value. `inputs`: the identities of the inputs, or functions
        that return them. Both raise MissingError where they need something that is absent. A function with a method
        `check_bytes` is another artefact, whose bytes are compared before they are read.
    `fill`: writes the files through a `Work`. A later call resumes, since finished files are kept.
    """

    kind: str
    name: str
    config: Callable[[], dict[str, Any]]
    inputs: Mapping[str, str | Callable[[], str]]
    fill: Callable[[Work], None]
    _spec: list[Spec] = field(default_factory=list, init=False, repr=False, compare=False)

    def spec(self) -> Spec:
        """Return the identity of the artefact. The first call reads and hashes the inputs."""
        if not self._spec:
            inputs = {name: self.identity_of(name) for name in self.inputs}
            self._spec.append(Spec(self.kind, self.name, self.config(), inputs))
        return self._spec[0]

    def identity_of(self, name: str) -> str:
        """Return the identity of an input."""
        value = self.inputs[name]
        return value if isinstance(value, str) else value()

    def check_inputs(self) -> None:
        """Raise if a file of an artefact among the inputs is changed: what is made of it would pass as right."""
        for value in self.inputs.values():
            getattr(value, "check_bytes", lambda: None)()


def build(
    out: Path,
    recipe: Recipe,
    progress: Progress = SILENT,
    again: Callable[[Manifest], bool] = lambda _: False,
    replacing: Callable[[Manifest], None] = lambda _: None,
    record: Mapping[str, Any] | None = None,
) -> tuple[Manifest, bool]:
    """Build an artefact unless it exists already; of an artefact that exists, no file but its manifest is read.

    `out`: folder of the artefact. It is replaced only when the new artefact is complete. `again`: whether to build an
    artefact again that is up to date. `replacing`: takes the manifest of the artefact that will be replaced. `record`:
    entries of the manifest's `provenance`. Returns `built`: False if the artefact existed
    already with the same fingerprint.
    """
    spec = recipe.spec()
    folder = work_folder(out, spec.fingerprint)
    leftovers = folder, folder.with_name(folder.name + _OLD)
    try:
        # A complete artefact needs no lock, so that readers of a read-only folder never write.
        current = current_manifest(out, spec, again)
        if current and not any(map(Path.exists, leftovers)):
            return current, False
        if not current:
            # A refused folder must stay untouched, so this comes before a lock file is made beside it.
            check_place(out, spec, replacing)
        with exclusive(out, folder.parent, progress):
            # Another run may have built the artefact while this one waited for the lock, or was killed at its end.
            if current := current_manifest(out, spec, again):
                for path in leftovers:
                    _remove(path)
                return current, False
            # A work folder with a manifest is complete: the run that filled it was killed before it was moved.
            current = current_manifest(folder, spec) or _fill(folder, recipe, record)
            # The work may have taken hours, and `out` may hold other files by now.
            check_place(out, spec)
            _move(folder, current, out)
            # Unfinished work under other parameters or inputs is given up after a build only.
            for pattern in (name := f"{glob.escape(out.name)}-{'[0-9a-f]' * 16}", name + _OLD):
                for path in folder.parent.glob(pattern):
                    _remove(path)
            return current, True
    except OSError as error:
        raise system_error(error, out) from error


def current_manifest(out: Path, spec: Spec, again: Callable[[Manifest], bool] = lambda _: False) -> Manifest | None:
    """Return the manifest of the artefact of a spec if it is complete, judged by names and sizes of its files."""
    with suppress(OSError, MissingError, CheckError):
        manifest = open_artefact(out, spec.kind)
        if manifest.fingerprint == spec.fingerprint and not again(manifest):
            return manifest
    return None


def work_folder(out: Path, fingerprint: str) -> Path:
    """Return the work folder of an artefact."""
    return out.parent / WORK / f"{out.name}-{fingerprint[:16]}"


@contextmanager
def exclusive(out: Path, folder: Path, progress: Progress = SILENT) -> Iterator[None]:
    """Hold the lock of an artefact, a file in `folder`, inside a `with` block."""
    from filelock import FileLock, Timeout

    make_folder(folder)
    lock = FileLock(folder / f"{out.name}.lock")
    try:
        held = lock.acquire(timeout=_PATIENCE)
    except Timeout:
        progress.note(f"waiting for another run on {out}")
        held = lock.acquire()
    with held:
        yield


def _fill(folder: Path, recipe: Recipe, record: Mapping[str, Any] | None) -> Manifest:
    recipe.check_inputs()
    work, spec, started = Work(folder, provenance=dict(record or {})), recipe.spec(), time.monotonic()
    make_folder(folder)
    resumed = any(folder.iterdir())
    try:
        recipe.fill(work)
    except Exception as error:
        # torch and safetensors raise errors of their own, and only the text says why the write failed.
        if not isinstance(error, OSError | RelabelError) and any(sign in str(error) for sign in _FULL_DISK):
            raise OSError(ENOSPC, os.strerror(ENOSPC)) from error
        raise
    versions = {name: sys.modules[name].__version__ for name in _LIBRARIES if name in sys.modules}
    machine = {"python": sys.version, "platform": sys.platform, "cpus": os.cpu_count()}
    seconds = round(time.monotonic() - started, 3)
    provenance = {**work.provenance, "seconds": seconds, "libraries": versions, "machine": machine}
    # The seconds are those of the last process only.
    provenance |= {"resumed": True} if resumed else {}
    metadata, files = work.metadata, work.entries()
    manifest = Manifest(spec.kind, spec.name, spec.fingerprint, spec.config, spec.inputs, metadata, provenance, files)
    write_text(folder / MANIFEST, manifest.to_json())
    return manifest


def _move(folder: Path, manifest: Manifest, out: Path) -> None:
    """Replace `out` by the complete work folder, without the files that are not part of the artefact."""
    for path in foreign_files(folder, manifest.files):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        # Without this, a power cut could bring back a name, which would then lie in the finished artefact.
        sync_folder(path.parent)
    # Two renames: for an instant `out` is absent, and never incomplete.
    old = folder.with_name(folder.name + _OLD)
    if out.exists():
        _remove(old)
        out.rename(old)
    folder.rename(out)
    sync_folder(out.parent)
    sync_folder(folder.parent)


def _remove(folder: Path) -> None:
    """Remove a folder. Of a link only the link is removed."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def foreign_files(folder: Path, files: Collection[str]) -> Iterator[Path]:
    """Yield the paths in an artefact's folder that are not its files, sorted; a folder without any of them once.

    DVC's own file is none of them.
    """
    expected = {folder / name for name in files} | {folder / MANIFEST}
    inside = {parent for path in expected for parent in path.parents}
    for path in sorted(folder.rglob("*")):
        if path.parent in inside and path not in expected | inside and path.name != GITIGNORE:
            yield path


def check_place(out: Path, spec: Spec, replacing: Callable[[Manifest], None] = lambda _: None) -> None:
    """Raise if a folder holds anything but an older artefact of the same kind and name, which may be replaced.

    The name of a model is not compared: it describes how the model was made, and the folder is the user's choice.

    `replacing`: see `build`.
    """
    move_away = "Choose another name or folder, or move this one away."
    if out.name in ("", ".."):
        raise UsageError(f"{str(out)!r} cannot be the folder of an artefact", todo="Give the folder a name of its own.")
    if not os.path.lexists(out) or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        manifest = read_manifest(out)
    except (MissingError, CheckError) as error:
        raise CheckError(f"found something else ({error.problem})", where=str(out), todo=move_away) from error
    if manifest.kind != spec.kind or (spec.kind not in MODELS and manifest.name != spec.name):
        message = f"found {manifest.kind} {manifest.name}, where only an older {spec.kind} {spec.name} may be replaced"
        raise CheckError(message, where=str(out), todo=move_away)
    for path in foreign_files(out, manifest.files):
        message = f"found {path.relative_to(out)}, which relabel did not write, in a folder that is to be replaced"
        raise CheckError(message, where=str(out), todo=f"Move {path} away, and run again.")
    replacing(manifest)
