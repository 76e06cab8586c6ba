"""Model of a fuse, fitted by `relabel tune fuse` and stored as JSON.

A model has two heads over the same parts: `set` scores a caption against the references of an image, and `single`
scores it against one reference. A head is a sum of curves, one per feature. It predicts human scores on a scale of 0 to
1, none above its cap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from relabel.core.errors import CheckError, MissingError
from relabel.core.types import Scores
from relabel.sources.fuse.features import Feature
from relabel.store.files import write_text
from relabel.store.manifest import Manifest, open_artefact, version_of
from relabel.store.workdir import Work

KIND = "fuse_model"
MODEL = "model.json"
BOUNDS = (0.0, 1.0)
"""Range of relevance: human scores 0..5, divided by 5."""

HeadName = Literal["set", "single"]
HEADS: tuple[HeadName, ...] = ("set", "single")
_STORAGE = ("rows", "rows_per_shard", "index")  # parameters of an encoding that change no value


class Curve(NamedTuple):
    """Piecewise-linear function of one feature: `values` at ascending `knots`, and constant outside of them."""

    feature: Feature
    knots: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Head:
    """Fitted sum of curves, at least 0 and at most `cap`."""

    curves: tuple[Curve, ...]
    cap: float = BOUNDS[1]

    @property
    def features(self) -> tuple[Feature, ...]:
        """Feature of each curve."""
        return tuple(curve.feature for curve in self.curves)

    @property
    def steepness(self) -> float:
        """Sum of the steepest slopes: a change of every feature by d changes a score by at most this times d."""
        return float(sum(np.max(np.abs(np.diff(c.values) / np.diff(c.knots)), initial=0) for c in self.curves))

    def score(self, features: Iterable[Scores]) -> Scores:
        """Score pairs by their features, arrays of one shape; NaN where a feature is."""
        terms = (np.interp(x, c.knots, c.values) for c, x in zip(self.curves, features, strict=True))
        return np.clip(sum(terms), BOUNDS[0], self.cap)


@dataclass(frozen=True)
class Part:
    """Description of a label that a model was fitted with.

    `pair_by_pair`: see Source.is_pairwise.
    `semantic`: parameters of its encoding, without its rows (see `without_rows`).
    `out_of_fold`: sha256 of the out-of-fold predictions that replaced it in the fit, if it was itself tuned on val.
    """

    source: str
    pair_by_pair: bool
    semantic: dict[str, Any]
    out_of_fold: str | None = None


@dataclass(frozen=True)
class FuseModel:
    """Parts by label, and the two heads."""

    parts: dict[str, Part]
    heads: dict[HeadName, Head]

    def write(self, work: Work) -> None:
        """Write `model.json`."""
        # Python writes the shortest text that reads back as the same float64.
        text = json.dumps({"format": version_of(KIND), **asdict(self)}, indent=1) + "\n"
        work.file(MODEL, lambda path: write_text(path, text))


def read_model(folder: Path) -> FuseModel:
    """Read a model."""
    model_manifest(folder)
    body = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    if body["format"] != (expected := version_of(KIND)):
        message, todo = f"expected format {expected}, found {body['format']}", "Fit it again with `relabel tune fuse`."
        raise CheckError(message, where=str(folder / MODEL), todo=todo)
    parts = {label: Part(**entry) for label, entry in body["parts"].items()}
    return FuseModel(parts, {name: _head(**body["heads"][name]) for name in HEADS})


def _head(curves: list[Any], cap: float) -> Head:
    return Head(tuple(Curve(Feature(*f), tuple(knots), tuple(values)) for f, knots, values in curves), cap)


def model_manifest(folder: Path) -> Manifest:
    """Read a model's manifest; raise MissingError, with the command that fits a model, if the folder has none."""
    if not (folder / MODEL).is_file():
        todo = f"Fit one with `relabel tune fuse --on cxc-val --out {folder}`."
        raise MissingError("no model of a fuse in this folder", where=str(folder), todo=todo)
    return open_artefact(folder, KIND)


def without_rows(semantic: Mapping[str, Any]) -> Any:
    """Return an encoding's parameters and version without its rows and its storage, as JSON-able values."""
    version = version_of("encoding", semantic.get("source"))
    kept = {k: v for k, v in semantic.items() if k not in _STORAGE} | {"version": version}
    # Sorted, since the order in which a source names its parameters may differ between runs, and bytes may not.
    return json.loads(json.dumps(kept, sort_keys=True))
