"""Damage to files of artefacts, and readers of those that are read without the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.drills.mutation import Mutator
from tests.drills.trails import plain

from relabel.core.errors import RelabelError
from relabel.datasets import load_manifest, locate
from relabel.store.manifest import MANIFEST, open_artefact, read_manifest
from relabel_train.features import open_features
from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches
from relabel_train.reference.runs import load_checkpoint


def targets(root: Path) -> list[tuple[str, Path]]:
    """List kind and folder of artefacts, fetched files and checkpoints, of which the last two have no manifest."""
    folders = [p.parent for top in ("labels", "data") for p in sorted((root / top).rglob(MANIFEST))]
    listed = [(read_manifest(folder).kind, folder) for folder in folders]
    return [*listed, ("fetched", root / "data/eccv"), ("checkpoint", root / "runs/fit")]


@contextmanager
def damaged(path: Path, mutator: Mutator) -> Iterator[None]:
    """Delete, cut, extend or change a file for the duration of the block, then restore its bytes."""
    body: bytes = path.read_bytes()
    changed: bytes | None = body
    while changed == body:
        bodies = [mutator.change_bytes(body) for _ in range(3)]
        cut, longer = body[: mutator.rng.randrange(len(body) + 1)], body + mutator.rng.randbytes(9)
        changed = mutator.rng.choice([None, cut, longer, *bodies])
    try:
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)
        yield
    finally:
        path.write_bytes(body)


def served(kind: str, folder: Path, verify: bool = True) -> Any:
    """Return all that an artefact serves (its manifest, if not of READERS), None if refused; `verify`: of exports."""
    try:
        return READERS[kind](folder, verify) if kind in READERS else open_artefact(folder, kind)
    except (RelabelError, ValueError, FileNotFoundError):  # those with which the thin package refuses a file
        return None


def _lookup(folder: Path, verify: bool) -> Any:
    lookup = open_lookup(folder, verify)
    rows = np.asarray(lookup.rows)
    names = lookup.caption_ids(rows)
    parts = [lookup.block(rows, dtype=np.float64), lookup.same_image(rows), lookup.rows_of(names)]
    if lookup.about.neighbours is not None:
        parts += lookup.neighbours(np.arange(*lookup.about.neighbours["rows"]))
    return [names, lookup.image_ids(rows), lookup.about.bounds, [part.tobytes() for part in parts]]


def _batches(folder: Path, verify: bool) -> Any:
    plan = open_batches(folder, verify)
    return [([part.tobytes() for part in plan[i]], plan.names(i)) for i in range(len(plan))]


def _features(folder: Path, verify: bool) -> Any:
    features = open_features(folder, verify=verify)
    return [features.image_ids, [part.tobytes() for part in features.take(np.arange(len(features.image_ids)))]]


def _fetched(folder: Path, _: bool) -> Any:
    return [locate(folder.name, file.name, folder.parent).read_bytes() for file in load_manifest(folder.name).files]


def _checkpoints(folder: Path, _: bool) -> Any:
    return [plain(load_checkpoint(folder / name)) for name in ("best.pt", "last.pt")]


# Kinds whose reader compares the bytes only with `verify=True`, and all that are read without the pipeline.
EXPORTS = {"lookup": _lookup, "batches": _batches, "proxy_features": _features}
READERS = EXPORTS | {"fetched": _fetched, "checkpoint": _checkpoints}
