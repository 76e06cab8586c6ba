"""Checks of the folder of a new artefact. It may replace only an older artefact of the same kind and name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from relabel.core.errors import CheckError, UsageError, system_error
from relabel.store.manifest import MANIFEST, MODELS, ArtefactSpec, read_manifest
from relabel.store.workdir import WRITTEN, foreign_files

_FIELD = re.compile(r'^ "(?P<name>kind|name|fingerprint)": "(?P<value>[^"\\\n]*)",?$', re.MULTILINE)
_MOVE_AWAY = "Choose another name or folder, or move this one away."


def check_kind(out: Path, kind: str) -> None:
    """Raise if a folder holds anything but an artefact of a kind. For use before the spec is known.

    Raises
    ------
    CheckError, UsageError
        Like `check_place`.
    """
    _check(out, kind, None, "", None)


def check_place(out: Path, artefact: ArtefactSpec, files: Collection[str] = ()) -> None:
    """Raise if a folder holds anything but an older artefact of the same kind and name.

    The name of a model is not compared: it describes how the model was made, and the folder is the user's choice. An
    artefact with a damaged manifest is accepted if the manifest names the spec's kind and name or its fingerprint.

    Parameters
    ----------
    out : Path
        Folder of the artefact.
    artefact : ArtefactSpec
        The new artefact.
    files : collection of str
        Names of the files of the new artefact, if they are known.

    Raises
    ------
    CheckError
        If the folder holds something else, or files that relabel did not write beside an older artefact.
    UsageError
        If the path does not end in a name ("." or "..").

    Examples
    --------
    >>> from pathlib import Path
    >>> check_place(Path("labels/coco/corpus"), ArtefactSpec("corpus", "coco", {}, {}))
    """
    _check(out, artefact.kind, None if artefact.kind in MODELS else artefact.name, artefact.fingerprint, files)


def _check(out: Path, kind: str, name: str | None, fingerprint: str, files: Collection[str] | None) -> None:
    if out.name in ("", ".."):
        raise UsageError(f"{str(out)!r} cannot be the folder of an artefact", todo="Give the folder a name of its own.")
    try:
        _check_folder(out, kind, name, fingerprint, files)
    except OSError as error:
        raise system_error(error, out) from error


def _check_folder(out: Path, kind: str, name: str | None, fingerprint: str, files: Collection[str] | None) -> None:
    try:
        out.lstat()
    except FileNotFoundError:
        return
    if not out.is_dir():
        message = "found a link to a folder that does not exist" if out.is_symlink() else "found a file, not a folder"
        raise CheckError(message, where=str(out), todo=_MOVE_AWAY)
    content = sorted(os.listdir(out))  # noqa: PTH208
    if not content:
        return
    # Without a manifest nobody knows which artefact this was, even if relabel wrote it.
    written = [name for name in content if WRITTEN.fullmatch(name)]
    if MANIFEST not in content and written:
        message = f"found files of an artefact without its manifest ({written[0]})"
        raise CheckError(message, where=str(out), todo="Delete the folder or move it away, and run again.")
    if MANIFEST not in content:
        raise CheckError(f"found files that relabel did not write ({content[0]})", where=str(out), todo=_MOVE_AWAY)
    try:
        manifest = read_manifest(out)
    except CheckError:
        _check_damaged(out, kind, name, fingerprint)
        # A damaged manifest no longer lists its files for certain, so any key that may be a name counts as one.
        if files:
            _check_unexpected_files(out, {*files, *_names(out)})
        return
    if manifest.kind != kind or name not in (None, manifest.name):
        raise CheckError(_describe_other(manifest.kind, manifest.name, kind, name), where=str(out), todo=_MOVE_AWAY)
    if files is not None:
        _check_unexpected_files(out, {*files, *manifest.files})


def _check_damaged(out: Path, kind: str, name: str | None, fingerprint: str) -> None:
    """Compare the fields that are still readable in a damaged manifest."""
    fields = {match["name"]: match["value"] for match in _FIELD.finditer(_text(out))}
    if fingerprint and fields.get("fingerprint") == fingerprint:
        return
    if "kind" not in fields or "name" not in fields:
        message = "found a manifest too damaged to tell which artefact this is"
        raise CheckError(message, where=str(out / MANIFEST), todo="Delete the folder or move it away, and run again.")
    if fields["kind"] != kind or name not in (None, fields["name"]):
        raise CheckError(_describe_other(fields["kind"], fields["name"], kind, name), where=str(out), todo=_MOVE_AWAY)


def _check_unexpected_files(out: Path, files: Collection[str]) -> None:
    for path in foreign_files(out, files):
        message = f"found {path.relative_to(out)}, which relabel did not write, in a folder that is to be replaced"
        raise CheckError(message, where=str(out), todo=f"Move {path} away, and run again.")


def _names(out: Path) -> set[str]:
    """Return the keys of a damaged manifest that may be names of files."""
    return set(re.findall(r'^  "([^"\n]+)": \{$', _text(out), re.MULTILINE))


def _text(out: Path) -> str:
    return (out / MANIFEST).read_bytes().decode(errors="replace")


def _describe_other(kind: str, name: str, wanted: str, wanted_name: str | None) -> str:
    replaceable = wanted if wanted_name is None else f"{wanted} {wanted_name}"
    return f"found {kind} {name}, where only an older {replaceable} may be replaced"
