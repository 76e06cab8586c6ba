"""Model of a fuse, fitted by `relabel tune fuse` and stored as JSON and `.npy` files.

A model has two heads over the same parts: `set` scores a caption against the references of an image, and `single`
scores it against one reference. A head is a linear function of its features plus, if it is boosted, the values of
trees. It predicts human scores on a scale of 0 to 1. Predictions above the start of a head's plateau become one score.
Trees are plain arrays, and their sums over many pairs have the bits of scikit-learn's own predictor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError
from relabel.core.numeric.threads import run_chunks
from relabel.core.types import Scores
from relabel.sources.fuse.features import Feature
from relabel.store.arrays import save_array
from relabel.store.files import write_text
from relabel.store.manifest import Manifest, open_artefact, read_manifest, version_of
from relabel.store.workdir import Work

I4 = NDArray[np.int32]
F8 = NDArray[np.float64]
_STEP = 1 << 14  # pairs per task of a thread
_BLOCK = 256  # pairs whose features stay in the first-level cache while all trees are evaluated
_STORAGE = ("rows", "rows_per_shard", "index")  # parameters of an encoding that change no value


class Trees(NamedTuple):
    """T regression trees as one table of N nodes.

    `roots`: (T,) int32; root of each tree.
    `nodes`: (N, 3) int32; feature, left child and right child of every node; a leaf has feature -1.
    `values`: (N,) float64; value of a leaf, or threshold of any other node: a feature that is not larger goes left.
    """

    roots: I4
    nodes: I4
    values: F8

    @classmethod
    def none(cls) -> Trees:
        """Return trees without any tree."""
        return cls(np.empty(0, np.int32), np.empty((0, 3), np.int32), np.empty(0))


def export_trees(fitted: Any) -> Trees:
    """Convert the trees of a HistGradientBoostingRegressor that was fitted to numbers: no categories, no NaN."""
    tables = [stage[0].nodes for stage in fitted._predictors]
    if not tables:
        return Trees.none()
    roots = np.cumsum([0, *(len(t) for t in tables[:-1])]).astype(np.int32)
    nodes, values = [], []
    # scikit-learn numbers the nodes of each tree from 0, with children after their parent. The root's index is added.
    for root, table in zip(roots, tables, strict=True):
        leaf = table["is_leaf"].astype(bool)
        children = [np.where(leaf, -1, table[side].astype(np.int64) + root) for side in ("left", "right")]
        nodes.append(np.stack([np.where(leaf, -1, table["feature_idx"]), *children], axis=1).astype(np.int32))
        values.append(np.where(leaf, table["value"], table["num_threshold"]))
    return Trees(roots, np.concatenate(nodes), np.concatenate(values).astype(np.float64))


def add_trees(trees: Trees, features: F8, out: F8, threads: int = 1) -> None:
    """Add the trees' values to `out`, tree by tree.

    `features`: (P, F) float64, C-contiguous. `out`: (P,) float64; initial values, which are changed in place. Must be
    NaN wherever a feature is.
    """
    if len(trees.roots):
        compiled = _compile_sum()
        run_chunks(lambda lo, hi: compiled(*trees, features[lo:hi], out[lo:hi]), len(out), threads, _STEP)


def _sum_trees(roots: I4, nodes: I4, values: F8, features: F8, out: F8) -> None:
    """Add the values of all trees to `out`, (P,)."""
    # Blocks of pairs are the outer loop, but each pair adds its trees in their order. So the bits do not depend on the
    # size of a block.
    for start in range(0, len(out), _BLOCK):
        stop = min(start + _BLOCK, len(out))
        for t in range(len(roots)):
            for p in range(start, stop):
                n = roots[t]
                # Children follow their parent, so the walk ends at a leaf. Equality goes left, as in scikit-learn.
                while nodes[n, 0] >= 0:
                    n = nodes[n, 1] if features[p, nodes[n, 0]] <= values[n] else nodes[n, 2]
                out[p] += values[n]


@cache
def _compile_sum() -> Callable[..., None]:
    """Compile `_sum_trees`. numba is loaded for the first score, because a model is also read without scoring."""
    from relabel.core.numeric.kernels import jit

    return jit(_sum_trees)


KIND = "fuse_model"
MODEL = "model.json"
BOUNDS = (0.0, 1.0)
"""Range of relevance: human scores 0..5, divided by 5."""

HeadName = Literal["set", "single"]
HEADS: tuple[HeadName, ...] = ("set", "single")


class Plateau(NamedTuple):
    """Largest score of a head: every prediction above `start` becomes `score`. The default changes nothing."""

    start: float = BOUNDS[1]
    score: float = BOUNDS[1]


@dataclass(frozen=True, eq=False)
class Head:
    """Fitted function of features.

    `weights`: (F,) float64.
    """

    features: tuple[Feature, ...]
    intercept: float
    weights: NDArray[np.float64]
    trees: Trees = field(default_factory=Trees.none)
    plateau: Plateau = field(default_factory=Plateau)

    def score(self, values: Scores, threads: int = 1) -> Scores:
        """Score P pairs by their features.

        `values`: (P, F) float64. Returns (P,) float64, in `BOUNDS`; NaN where a feature is. The bits do not depend on
        the other pairs of the call.
        """
        out = np.full(len(values), self.intercept)
        # Column by column: a matrix product would choose its order of additions by the shape.
        for f, weight in enumerate(self.weights.tolist()):
            out += values[:, f] * weight
        add_trees(self.trees, np.ascontiguousarray(values), out, threads)
        out = np.clip(out, *BOUNDS)
        return np.asarray(np.where(out > self.plateau.start, self.plateau.score, out), np.float64)


@dataclass(frozen=True)
class Part:
    """Description of a label that a model was fitted with.

    `pair_by_pair`: see Source.is_pairwise.
    `semantic`: parameters of its encoding, without its rows (see `without_rows`).
    `out_of_fold`: sha256 of the out-of-fold predictions that replaced it in the fit, if it was itself tuned on val.
    """

    source: str
    kind: str
    pair_by_pair: bool
    semantic: dict[str, Any]
    out_of_fold: str | None = None


@dataclass(frozen=True, eq=False)
class FuseModel:
    """Parts by label, and the two heads."""

    parts: dict[str, Part]
    heads: dict[HeadName, Head]

    def write(self, work: Work) -> None:
        """Write `model.json` and the trees of each head."""
        for name, head in self.heads.items():
            for array, values in head.trees._asdict().items():
                work.file(_file(name, array), lambda path, v=values: save_array(path, v))  # type: ignore[misc]
        # Python writes the shortest text that reads back as the same float64.
        heads = {
            name: {
                "features": head.features,
                "intercept": head.intercept,
                "weights": head.weights.tolist(),
                "plateau": head.plateau,
            }
            for name, head in self.heads.items()
        }
        parts = {label: asdict(part) for label, part in self.parts.items()}
        text = json.dumps({"format": version_of(KIND), "parts": parts, "heads": heads}, indent=1) + "\n"
        work.file(MODEL, lambda path: write_text(path, text))


def read_parts(folder: Path) -> dict[str, Part]:
    """Read the parts of a model, without its trees; raise as `read_model` does."""
    return _read(folder)[1]


def read_model(folder: Path) -> FuseModel:
    """Read a model."""
    _check_present(folder)
    open_artefact(folder, KIND)
    body, parts = _read(folder)
    heads: dict[HeadName, Head] = {}
    for name in HEADS:
        entry = body["heads"][name]
        trees = Trees(*(np.load(folder / _file(name, array), allow_pickle=False) for array in Trees._fields))
        features = tuple(Feature(*f) for f in entry["features"])
        weights = np.array(entry["weights"], np.float64)
        heads[name] = Head(features, entry["intercept"], weights, trees, Plateau(*entry["plateau"]))
    return FuseModel(parts, heads)


def model_manifest(folder: Path) -> Manifest:
    """Read a model's manifest; raise as `read_model` does."""
    _check_present(folder)
    return read_manifest(folder, KIND)


def without_rows(semantic: Mapping[str, Any]) -> Any:
    """Return an encoding's parameters and version without its rows and its storage, as JSON-able values."""
    version = version_of("encoding", semantic.get("source"))
    return json.loads(json.dumps({k: v for k, v in semantic.items() if k not in _STORAGE} | {"version": version}))


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Part]]:
    """Read `model.json`: its contents, and the parts."""
    _check_present(folder)
    path, todo = folder / MODEL, "Fit it again with `relabel tune fuse`."
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["format"] != (expected := version_of(KIND)):
            raise CheckError(f"expected format {expected}, found {body['format']}", where=str(path), todo=todo)
        return body, {label: Part(**entry) for label, entry in body["parts"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckError(f"not the model of a fuse ({error!r})", where=str(path), todo=todo) from error


def _check_present(folder: Path) -> None:
    """Raise MissingError, with the command that fits a model, if the folder has none."""
    if not (folder / MODEL).is_file():
        todo = f"Fit one with `relabel tune fuse --on cxc-val --out {folder}`."
        raise MissingError("no model of a fuse in this folder", where=str(folder), todo=todo)


def _file(head: HeadName, array: str) -> str:
    return f"{head}-{array}.npy"
