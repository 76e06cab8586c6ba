"""Damage to files of artefacts, and readers that return a digest of everything that an artefact serves."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.drills.trails import plain

from experiments.proxy_features import remaining_project
from relabel import stages
from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.stages import Project
from relabel.store.manifest import MANIFEST, open_artefact, read_manifest, read_parts
from relabel.store.workdir import DONE
from relabel_train.training.files import load_checkpoint

WAYS = ("bit", "overwrite", "zeros", "truncate", "extend", "delete")
MODELS = {"word_vectors": "cbow", "cross_encoder": "bert_sts", "sentence_encoder": "tuned", "fuse_model": "fuse"}
"""Kind of a model to a label that takes it."""
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

    @property
    def subject(self) -> str:
        """Return the name in a report: the kind, and the label if kinds of encodings and exports differ."""
        last = self.name.rpartition("/")[2]
        return f"{self.kind} {last}" if self.kind in ("encoding", "lookup", "plan", "neighbours") else self.kind


def targets(root: Path) -> list[Target]:
    """List the artefacts of a folder, the fetched files, and the checkpoints of a training."""
    folders = [p.parent for top in ("labels", "data") for p in sorted((root / top).rglob(MANIFEST))]
    listed = [Target(read_manifest(f).kind, f.relative_to(root).as_posix()) for f in folders]
    return [*listed, Target("fetched", "data/eccv"), Target("checkpoint", "runs/fit")]


def files_of(folder: Path, kind: str) -> list[Path]:
    """List the files that can be damaged."""
    if kind == "checkpoint":
        return sorted(folder.glob("*.npz"))
    infix = ".replaced-"  # infix of files that `relabel fetch` keeps when it replaces them
    return sorted(p for p in folder.rglob("*") if p.is_file() and DONE not in p.parts and infix not in p.name)


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


class Readers:
    """Readers of the artefacts in the current folder.

    `__call__` returns a digest of everything that an artefact serves.
    """

    def __init__(self) -> None:
        opened_project = Project(load_config(None), Runtime(data=Path("data"), device="cpu", threads=1))
        self.projects = {
            project.layout.root.name: project for project in (opened_project, remaining_project(opened_project))
        }
        self.corpora = {name: project.corpus for name, project in self.projects.items()}

    def __call__(self, target: Target, verify: bool = True) -> str:
        """Read an artefact; `verify`: of the readers of exports."""
        folder = Path(target.name)
        if target.kind in MODELS:
            return self._label("drill", MODELS[target.kind], "all")
        if target.kind == "encoding":
            return self._label(folder.parts[1], folder.name, folder.parent.name)
        special: dict[str, Callable[[], Any]] = {
            "corpus": lambda: _table(Corpus.open(folder).table),
            "lookup": lambda: _lookup(folder, verify),
            "plan": lambda: _plan(folder, verify),
            "proxy_features": lambda: _features(folder, verify),
            "checkpoint": lambda: _checkpoints(folder),
            "fetched": lambda: _fetched(folder),
        }
        served = special.get(target.kind, lambda: _parts(folder, target.kind))()
        return hashlib.sha256(repr(served).encode()).hexdigest()

    def _label(self, dataset: str, label: str, split: str) -> str:
        """Score some pairs with a label."""
        project, corpus = replace(self.projects[dataset]), self.corpora[dataset]
        project.__dict__["corpus"] = corpus
        part = range(len(corpus)) if split == "all" else corpus.rows([split])
        rows = np.arange(part.start, part.stop, 7, dtype=np.int32)
        relevance = stages.open_label(project, label, split)
        if label == "meteor":  # scoring needs Java; opening and reading the encoding suffices
            return label
        scores = relevance.pairs(References.single(rows), rows[::-1].copy(), "paired")
        return hashlib.sha256(np.ascontiguousarray(scores).tobytes()).hexdigest()


def _table(table: Any) -> str:
    return json.dumps(table.to_pydict(), default=repr)


def _parts(folder: Path, kind: str) -> list[str]:
    manifest = open_artefact(folder, kind)
    served = [_table(read_parts(folder, manifest))] if manifest.parts else []
    return served + [repr((folder / name).read_bytes()) for name in manifest.files if name not in manifest.parts]


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
    from relabel_train.lookup import open_plan

    plan = open_plan(folder, verify)
    batches = [[part.tobytes() for part in plan[i]] for i in range(len(plan))]
    return [batches, [plan.names(i) for i in range(len(plan))]]


def _features(folder: Path, verify: bool) -> list[Any]:
    from relabel_train.features import open_features

    features = open_features(folder, verify=verify)
    return [features.image_ids, *(part.tobytes() for part in features.take(np.arange(len(features))))]


def _checkpoints(folder: Path) -> list[str]:
    return [repr(plain(load_checkpoint(folder / name))) for name in ("best.npz", "last.npz")]


def _fetched(folder: Path) -> list[bytes]:
    from relabel.datasets import load_manifest, locate

    return [locate(folder.name, file.name, folder.parent).read_bytes() for file in load_manifest(folder.name).files]
