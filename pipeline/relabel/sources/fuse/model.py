"""The model of a fuse: what `relabel tune fuse` fits and the source applies; numbers in JSON and `.npy`, no pickle.

Two heads share the parts: `set` scores a caption against the references of an image, `single` against one reference.
A head is a linear function of its features plus, if it is boosted, the values of trees; human scores are 0 to 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError
from relabel.core.types import Scores
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.trees import Trees, add_trees
from relabel.store.atomic import write_text
from relabel.store.manifest import Manifest, read_manifest
from relabel.store.reading import read_artefact
from relabel.store.safe_writers import save_array
from relabel.store.workdir import Work

KIND = "fuse_model"
MODEL = "model.json"
FORMAT = 1
BOUNDS = (0.0, 1.0)
"""Human scores 0..5, divided by 5."""

HeadName = Literal["set", "single"]
HEADS: tuple[HeadName, ...] = ("set", "single")


@dataclass(frozen=True, eq=False)
class Head:
    """A fitted function of features.

    Attributes
    ----------
    features : tuple of Feature
    intercept : float
    weights : (F,) float64
    trees : Trees
    """

    features: tuple[Feature, ...]
    intercept: float
    weights: NDArray[np.float64]
    trees: Trees = field(default_factory=Trees.none)

    def score(self, values: Scores, threads: int = 1) -> Scores:
        """Score P pairs by their features.

        Parameters
        ----------
        values : (P, F) float64
        threads : int

        Returns
        -------
        (P,) float64, in `BOUNDS`; NaN where a feature is. The same bits however many pairs are asked together.
        """
        out = np.full(len(values), self.intercept)
        for f, weight in enumerate(self.weights.tolist()):  # one order of additions, which a matrix product has not
            out += values[:, f] * weight
        add_trees(self.trees, np.ascontiguousarray(values), out, threads)
        return np.asarray(np.clip(out, *BOUNDS), np.float64)


@dataclass(frozen=True)
class Part:
    """What a model knows of a label that it was fitted with.

    Attributes
    ----------
    source, kind : str
    pair_by_pair : bool
        See Source.is_pairwise.
    semantic : dict
        Of its encoding, but for what says which captions: see `unrowed`.
    out_of_fold : str or None
        sha256 of the predictions that stood for it in the fit, if it was itself tuned on val.
    """

    source: str
    kind: str
    pair_by_pair: bool
    semantic: dict[str, Any]
    out_of_fold: str | None = None


@dataclass(frozen=True, eq=False)
class FuseModel:
    """Parts by label, and the heads."""

    parts: dict[str, Part]
    heads: dict[HeadName, Head]

    def write(self, work: Work) -> None:
        """Write `model.json` and the trees of each head."""
        for name, head in self.heads.items():
            for array, values in head.trees._asdict().items():
                work.file(_file(name, array), lambda path, v=values: save_array(path, v))  # type: ignore[misc]
        heads = {
            name: {"features": head.features, "intercept": head.intercept, "weights": head.weights.tolist()}
            for name, head in self.heads.items()
        }
        parts = {label: asdict(part) for label, part in self.parts.items()}
        text = json.dumps({"format": FORMAT, "parts": parts, "heads": heads}, indent=1) + "\n"
        work.file(MODEL, lambda path: write_text(path, text))


def read_parts(folder: Path) -> dict[str, Part]:
    """Read which labels a model takes, without its trees; raises as `read_model`."""
    return _read(folder)[1]


def read_model(folder: Path) -> FuseModel:
    """Read a model, its files held against their sha256.

    Raises
    ------
    MissingError
        If there is none.
    CheckError
        If it is not what was written.
    """
    _missing(folder)
    return read_artefact(folder, KIND, lambda _: _model(folder))


def _model(folder: Path) -> FuseModel:
    body, parts = _read(folder)
    heads: dict[HeadName, Head] = {}
    for name in HEADS:
        said = body["heads"][name]
        trees = Trees(*(np.load(folder / _file(name, array), allow_pickle=False) for array in Trees._fields))
        features = tuple(Feature(*f) for f in said["features"])
        heads[name] = Head(features, said["intercept"], np.array(said["weights"], np.float64), trees)
    return FuseModel(parts, heads)


def model_manifest(folder: Path) -> Manifest:
    """Read a model's manifest; raises as `read_model`."""
    _missing(folder)
    return read_manifest(folder, KIND)


def unrowed(semantic: Mapping[str, Any], without: Sequence[str] = ("rows", "rows_per_shard", "index")) -> Any:
    """Take from an encoding's parameters those that say which captions were encoded and how they are stored."""
    return json.loads(json.dumps({k: v for k, v in semantic.items() if k not in without}))


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Part]]:
    _missing(folder)
    path, todo = folder / MODEL, "Fit it again with `relabel tune fuse`."
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["format"] != FORMAT:
            raise CheckError(f"expected format {FORMAT}, found {body['format']}", where=str(path), todo=todo)
        return body, {label: Part(**said) for label, said in body["parts"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckError(f"not the model of a fuse ({error!r})", where=str(path), todo=todo) from error


def _missing(folder: Path) -> None:
    if not (folder / MODEL).is_file():
        todo = f"Fit one with `relabel tune fuse --on cxc-val --out {folder}`."
        raise MissingError("no model of a fuse here", where=str(folder), todo=todo)


def _file(head: HeadName, array: str) -> str:
    return f"{head}-{array}.npy"
