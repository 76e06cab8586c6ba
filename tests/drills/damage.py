"""Damage to files of artefacts, and readers of those that are read without the pipeline."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.drills.trails import plain

from relabel.store.manifest import MANIFEST, read_manifest
from relabel_train.reference.files import load_checkpoint

WAYS = ("bit", "overwrite", "zeros", "truncate", "extend", "delete")
REFUSALS = (ValueError, FileNotFoundError)
"""Errors with which the thin package refuses a damaged file, beside RelabelError."""


@dataclass(frozen=True)
class Target:
    """An artefact whose files are damaged.

    Attributes
    ----------
    kind : str
        Kind of the manifest; `fetched` and `checkpoint` have none.
    name : str
        Path below the folder of the run.
    """

    kind: str
    name: str


def targets(root: Path) -> list[Target]:
    """List the artefacts of a folder, the fetched files, and the checkpoints of a training."""
    folders = [p.parent for top in ("labels", "data") for p in sorted((root / top).rglob(MANIFEST))]
    listed = [Target(read_manifest(f).kind, f.relative_to(root).as_posix()) for f in folders]
    return [*listed, Target("fetched", "data/eccv"), Target("checkpoint", "runs/fit")]


def files_of(folder: Path, kind: str) -> list[Path]:
    """List the files that can be damaged."""
    if kind == "checkpoint":
        return sorted(folder.glob("*.pt"))
    return sorted(p for p in folder.rglob("*") if p.is_file())


@contextmanager
def damaged(path: Path, way: str, chance: random.Random) -> Iterator[None]:
    """Damage a file for the duration of the block, then restore its bytes."""
    body = path.read_bytes()
    try:
        if way == "delete":
            path.unlink()
        else:
            path.write_bytes(changed(body, way, chance))
        yield
    finally:
        path.write_bytes(body)


def changed(body: bytes, way: str, chance: random.Random) -> bytes:
    """Return changed bytes."""
    out = bytearray(body)
    if way == "truncate" and body:
        return body[: chance.randrange(len(body))]
    if way in ("extend", "truncate") or not body:
        return body + chance.randbytes(chance.randint(1, 64))
    start = chance.randrange(len(body))
    if way == "bit":
        out[start] ^= 1 << chance.randrange(8)
    elif way == "overwrite":
        part = chance.randbytes(min(16, len(body) - start))
        out[start : start + len(part)] = part
    else:
        stop = min(len(body), start + 512)
        out[start:stop] = bytes(stop - start)
    return bytes(out) if out != body else changed(body, "bit", chance)


def read(target: Target, verify: bool = True) -> str:
    """Return a digest of everything that an artefact of the thin package, a checkpoint or a fetched file serves.

    `verify`: of the readers of exports.
    """
    folder = Path(target.name)
    readers: dict[str, Callable[[], Any]] = {
        "lookup": lambda: _lookup(folder, verify),
        "batches": lambda: _plan(folder, verify),
        "proxy_features": lambda: _features(folder, verify),
        "checkpoint": lambda: _checkpoints(folder),
        "fetched": lambda: _fetched(folder),
    }
    return hashlib.sha256(repr(readers[target.kind]()).encode()).hexdigest()


def _lookup(folder: Path, verify: bool) -> list[Any]:
    from relabel_train.lookup import open_lookup

    lookup = open_lookup(folder, verify)
    rows = np.asarray(lookup.rows)
    served: list[Any] = [lookup.block(rows, dtype=np.float64).tobytes(), lookup.same_image(rows).tobytes()]
    names = lookup.caption_ids(rows)
    served += [names, lookup.image_ids(rows), lookup.rows_of(names).tobytes(), lookup.about.bounds]
    if lookup.about.neighbours is not None:
        near = np.arange(*lookup.about.neighbours["rows"])
        served += [part.tobytes() for part in lookup.neighbours(near)]
    return served


def _plan(folder: Path, verify: bool) -> list[Any]:
    from relabel_train.precomputed import open_batches

    plan = open_batches(folder, verify)
    batches = [[part.tobytes() for part in plan[i]] for i in range(len(plan))]
    return [batches, [plan.names(i) for i in range(len(plan))]]


def _features(folder: Path, verify: bool) -> list[Any]:
    from relabel_train.reference.features import open_features

    features = open_features(folder, verify=verify)
    return [features.image_ids, *(part.tobytes() for part in features.take(np.arange(len(features))))]


def _checkpoints(folder: Path) -> list[str]:
    return [repr(plain(load_checkpoint(folder / name))) for name in ("best.pt", "last.pt")]


def _fetched(folder: Path) -> list[bytes]:
    from relabel.datasets import load_manifest, locate

    return [locate(folder.name, file.name, folder.parent).read_bytes() for file in load_manifest(folder.name).files]
