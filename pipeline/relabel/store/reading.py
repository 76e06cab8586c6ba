"""Consistent reads of an artefact that another run may replace meanwhile.

An artefact is replaced by a rename, and its files are opened by path one after another. Without a check they could
belong to two builds. The manifest is therefore read before and after. If both are equal, all files belong to one build.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from relabel.core.errors import CheckError, MissingError
from relabel.store.manifest import Manifest, open_artefact, read_manifest

T = TypeVar("T")
_TRIES = 3


def read_artefact(folder: Path, kind: str, read: Callable[[Manifest], T]) -> T:
    """Verify an artefact and read files of a single build.

    Parameters
    ----------
    folder : Path
    kind : str
    read : callable
        Takes the manifest and returns the result. Called again if the artefact was replaced meanwhile.

    Raises
    ------
    MissingError, CheckError
        Like `open_artefact`, or from `read`. Also CheckError if the artefact was replaced in each of three attempts.
    """
    for _ in range(_TRIES):
        manifest = read_manifest(folder, kind)
        try:
            open_artefact(folder, kind)
            result = read(manifest)
        except (CheckError, MissingError, OSError, pa.ArrowException):
            # A file that vanished or changed is an error only if the artefact is still the same.
            if not is_replaced(folder, manifest):
                raise
            continue
        if not is_replaced(folder, manifest):
            return result
    todo = "Run it again when the other run is done."
    raise CheckError("rebuilt by another run while it was read", where=str(folder), todo=todo)


def is_replaced(folder: Path, manifest: Manifest) -> bool:
    """Return whether a folder holds another build than that of a manifest, or none."""
    try:
        return read_manifest(folder, manifest.kind) != manifest
    except (MissingError, CheckError, OSError):
        return True


def refuse_replaced(folder: Path, manifest: Manifest) -> None:
    """Raise if a folder may hold other values than when it was opened.

    Raises
    ------
    CheckError
        If the identity of the folder's artefact is not that of the manifest.
    """
    # Another build with the same identity has the same values, so reading may continue.
    try:
        same = read_manifest(folder, manifest.kind).identity == manifest.identity
    except (MissingError, CheckError):
        same = False
    if not same:
        raise CheckError("rebuilt by another run after it was opened", where=str(folder), todo="Run it again.")
