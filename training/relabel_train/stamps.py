"""Verification of exports, remembered on this machine in one small file per export, its stamp.

Stamps lie in `$RELABEL_CACHE`, else `$XDG_CACHE_HOME/relabel`, else `~/.cache/relabel`. A stamp holds a digest of the
expected sha256, device, inode, size, and times of last modification and status change of every file. Any write to a
file changes the last one; only damage below the file system goes unnoticed. Without a writable cache folder every
opening verifies.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from relabel_train.folder import MappedArray, Verify


def verify_arrays(folder: Path, arrays: Mapping[str, MappedArray], verify: Verify) -> str:
    """Compare every byte with its sha256, unless `verify` allows to skip it; return the identity of the files.

    `folder`: resolved path of the export, under which the stamp is stored. `verify`: "once" skips files that carry this
    machine's stamp, False skips all.
    """
    identity = identity_of(array.identity for array in arrays.values())
    if verify is True or (verify == "once" and not is_verified(folder, identity)):
        for array in arrays.values():
            array.check()
        # Only after all files passed.
        note_verified(folder, identity)
    return identity


def identity_of(files: Iterable[tuple[str, str | None, tuple[int, ...]]]) -> str:
    """Return a digest of the current files, given the name, expected sha256 and state of each."""
    lines = sorted(f"{name} {sha256} {' '.join(map(str, state))}" for name, sha256, state in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def is_verified(folder: Path, identity: str) -> bool:
    """Return True if these very files were verified before on this machine."""
    try:
        return _stamp(folder).read_text(encoding="ascii") == identity
    except (OSError, ValueError, RuntimeError):
        return False


def note_verified(folder: Path, identity: str) -> None:
    """Remember that these very files were verified. Does nothing if the cache folder cannot be written."""
    try:
        stamp = _stamp(folder)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        # Written under another name and renamed: two processes may verify the same files.
        part = stamp.with_name(f".{stamp.name}.{os.getpid()}.part")
        part.write_text(identity, encoding="ascii")
        part.replace(stamp)
    except (OSError, RuntimeError):
        return


def _stamp(folder: Path) -> Path:
    """Return the path of a folder's stamp. RuntimeError: the user has no home."""
    cache, shared = os.environ.get("RELABEL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else (Path(shared) if shared else Path.home() / ".cache") / "relabel"
    return root / "verified" / hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
