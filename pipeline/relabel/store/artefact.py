"""Artefacts: folders of files with a manifest, built in a work folder and moved into place when complete.

The work folder is next to the artefact, on the same file system, and is moved by a rename. Its name includes the
fingerprint, so work with other inputs or parameters is never resumed. Tools that delete the artefact before a run, such
as DVC, do not delete the work.

A lock ensures that only one run at a time builds an artefact. It is a kernel lock (flock), released when the process
ends, even if it is killed.
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
"""Entry of a manifest's `provenance`: the parameters as written by the user."""
WORK = ".work"
"""Name of the folder next to artefacts that holds their work folders."""
GITIGNORE = ".gitignore"
"""Name of a file that DVC writes next to artefacts."""
_OLD = ".old"
_LIBRARIES = ("numpy", "pyarrow", "torch", "sentence_transformers", "openvino", "faiss", "numba")
"""Libraries that a manifest records with their versions, if the building process has loaded them."""
# torch's writer reports the position in the archive instead of the system's error.
_FULL_DISK = (*map(os.strerror, FULL), "PytorchStreamWriter failed", "inline_container.cc")
_PATIENCE = 1.0  # seconds of waiting for a lock before a note is shown


@dataclass(frozen=True)
class Recipe:
    """Identity of an artefact, and the function that writes its files.

    `config`: returns the parameters that can change a value. `inputs`: identities of the inputs, or functions that
        return them. Both raise MissingError if something is absent. A function with a method `check_bytes` stands for
        another artefact; its files are verified before they are read.
    `fill`: writes the files through a `Work`. A later call resumes, because finished files are kept.
    """

    kind: str
    name: str
    config: Callable[[], dict[str, Any]]
    inputs: Mapping[str, str | Callable[[], str]]
    fill: Callable[[Work], None]
    _spec: list[Spec] = field(default_factory=list, init=False, repr=False, compare=False)

    def spec(self) -> Spec:
        """Return the spec of the artefact. The first call reads and hashes the inputs."""
        if not self._spec:
            inputs = {name: self.identity_of(name) for name in self.inputs}
            self._spec.append(Spec(self.kind, self.name, self.config(), inputs))
        return self._spec[0]

    def identity_of(self, name: str) -> str:
        """Return the identity of an input."""
        value = self.inputs[name]
        return value if isinstance(value, str) else value()

    def check_inputs(self) -> None:
        """Raise if a file of an input artefact was changed, because the error would not be visible in the result."""
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
    """Build an artefact unless it exists. Of an existing artefact, only the manifest is read.

    `out`: folder of the artefact, replaced only when the new artefact is complete. `again`: takes the manifest of an
    artefact that is up to date, and returns whether to rebuild it. `replacing`: called with the manifest of an artefact
    that will be replaced. `record`: entries of the manifest's `provenance`. Returns the manifest, and whether the
    artefact was built.
    """
    spec = recipe.spec()
    folder = work_folder(out, spec.fingerprint)
    leftovers = folder, folder.with_name(folder.name + _OLD)
    try:
        # A complete artefact is returned without a lock, because its folder may be read-only.
        current = current_manifest(out, spec, again)
        if current and not any(map(Path.exists, leftovers)):
            return current, False
        if not current:
            # Before a lock file is created, because a rejected folder must not be changed.
            check_place(out, spec, replacing)
        with exclusive(out, folder.parent, progress):
            # Another run may have built the artefact meanwhile, or was killed before it removed its work folders.
            if current := current_manifest(out, spec, again):
                for path in leftovers:
                    _remove(path)
                return current, False
            # A work folder with a manifest is complete: an earlier run was killed before the move.
            current = current_manifest(folder, spec) or _fill(folder, recipe, record)
            # Checked again, because the work may have taken hours.
            check_place(out, spec)
            _move(folder, current, out)
            # Only after a build, unfinished work with other parameters or inputs is deleted.
            for pattern in (name := f"{glob.escape(out.name)}-{'[0-9a-f]' * 16}", name + _OLD):
                for path in folder.parent.glob(pattern):
                    _remove(path)
            return current, True
    except OSError as error:
        raise system_error(error, out) from error


def current_manifest(out: Path, spec: Spec, again: Callable[[Manifest], bool] = lambda _: False) -> Manifest | None:
    """Return the manifest if `out` is a complete artefact of the spec, otherwise None. Compares names and sizes."""
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
    """Hold the lock of an artefact, a file in `folder`, during a `with` block."""
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
        # torch and safetensors raise their own errors, and only the message contains the reason.
        if not isinstance(error, OSError | RelabelError) and any(sign in str(error) for sign in _FULL_DISK):
            raise OSError(ENOSPC, os.strerror(ENOSPC)) from error
        raise
    versions = {name: sys.modules[name].__version__ for name in _LIBRARIES if name in sys.modules}
    machine = {"python": sys.version, "platform": sys.platform, "cpus": os.cpu_count()}
    seconds = round(time.monotonic() - started, 3)
    provenance = {**work.provenance, "seconds": seconds, "libraries": versions, "machine": machine}
    # Then `seconds` is the time of the last process only.
    provenance |= {"resumed": True} if resumed else {}
    metadata, files = work.metadata, work.entries()
    manifest = Manifest(spec.kind, spec.name, spec.fingerprint, spec.config, spec.inputs, metadata, provenance, files)
    write_text(folder / MANIFEST, manifest.to_json())
    return manifest


def _move(folder: Path, manifest: Manifest, out: Path) -> None:
    """Replace `out` by the complete work folder. Files that are not part of the artefact are deleted."""
    for path in foreign_files(folder, manifest.files):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        # Otherwise a power cut could restore the file inside the finished artefact.
        sync_folder(path.parent)
    # Between the two renames, `out` is absent for an instant, but never incomplete.
    old = folder.with_name(folder.name + _OLD)
    if out.exists():
        _remove(old)
        out.rename(old)
    folder.rename(out)
    sync_folder(out.parent)
    sync_folder(folder.parent)


def _remove(folder: Path) -> None:
    """Remove a folder, or only the link if it is a symbolic link."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def foreign_files(folder: Path, files: Collection[str]) -> Iterator[Path]:
    """Yield the sorted paths in a folder that do not belong to its artefact; of foreign folders, only the folder.

    Files written by DVC are ignored.
    """
    expected = {folder / name for name in files} | {folder / MANIFEST}
    inside = {parent for path in expected for parent in path.parents}
    for path in sorted(folder.rglob("*")):
        if path.parent in inside and path not in expected | inside and path.name != GITIGNORE:
            yield path


def check_place(out: Path, spec: Spec, replacing: Callable[[Manifest], None] = lambda _: None) -> None:
    """Raise unless a folder is absent, empty or an older artefact of the same kind and name.

    The names of models are not compared: they are descriptions, and the user chooses the folder.

    `replacing`: see `build`.
    """
    move_away = "Choose another name or folder, or move this one."
    if out.name in ("", ".."):
        raise UsageError(f"{str(out)!r} cannot be the folder of an artefact", hint="Use a path that ends with a name.")
    if not os.path.lexists(out) or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        manifest = read_manifest(out)
    except (MissingError, CheckError) as error:
        raise CheckError(f"found something else ({error.problem})", where=str(out), hint=move_away) from error
    if manifest.kind != spec.kind or (spec.kind not in MODELS and manifest.name != spec.name):
        message = f"found {manifest.kind} {manifest.name}; only an older {spec.kind} {spec.name} would be replaced"
        raise CheckError(message, where=str(out), hint=move_away)
    for path in foreign_files(out, manifest.files):
        message = f"cannot replace the folder: {path.relative_to(out)} was not written by relabel"
        raise CheckError(message, where=str(out), hint=f"Move {path} and run again.")
    replacing(manifest)
