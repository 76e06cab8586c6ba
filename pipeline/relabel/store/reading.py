"""Reading an artefact that another run may replace meanwhile.

An artefact is replaced by rename, and its files are opened by path, one after another: without a check they could be of
two builds. The manifest is therefore compared before and after. What was read between two equal manifests is of one
build.
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
    """Verify an artefact and read its files, all of one build.

    Parameters
    ----------
    folder : Path
    kind : str
    read : callable
        Reads what is needed. Called again if the artefact was replaced before it was done.

    Raises
    ------
    MissingError, CheckError
        As `open_artefact`; whatever `read` raises; and CheckError if the artefact is replaced again and again.
    """
    for _ in range(_TRIES):
        manifest = read_manifest(folder, kind)
        try:
            open_artefact(folder, kind)
            result = read(manifest)
        except (CheckError, MissingError, OSError, pa.ArrowException):
            if not is_replaced(folder, manifest):
                raise
            continue
        if not is_replaced(folder, manifest):
            return result
    todo = "Run it again when the other run is done."
    raise CheckError("rebuilt by another run while it was read", where=str(folder), todo=todo)


def is_replaced(folder: Path, manifest: Manifest) -> bool:
    """Return whether a folder holds another build than the one of a manifest, or none."""
    try:
        return read_manifest(folder, manifest.kind) != manifest
    except (MissingError, CheckError, OSError):
        return True


def refuse_replaced(folder: Path, manifest: Manifest) -> None:
    """Refuse to read on in a folder that may hold other values than when it was opened.

    Raises
    ------
    CheckError
        If the folder's fingerprint is not the manifest's.
    """
    try:
        same = read_manifest(folder, manifest.kind).identity == manifest.identity
    except (MissingError, CheckError):
        same = False
    if not same:
        raise CheckError("rebuilt by another run after it was opened", where=str(folder), todo="Run it again.")
