"""Model of a fuse, fitted by `relabel tune fuse` and stored as JSON.

A model has two heads (`relabel_train.scoring.fuse`). A head is a sum of curves, one per feature. It predicts human
scores on a scale of 0 to 1, limited by its cap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from relabel.core.errors import CheckError, MissingError
from relabel.store.files import write_text
from relabel.store.manifest import Manifest, open_artefact, version_of
from relabel.store.workdir import Work
from relabel_train.scoring.fuse import Head, HeadName

KIND = "fuse_model"
MODEL = "model.json"
_STORAGE = ("rows", "rows_per_shard", "index")  # parameters of an encoding that do not change values


@dataclass(frozen=True)
class Part:
    """Description of a label that a model combines.

    `pair_by_pair`: see Source.is_pairwise.
    `config`: parameters of the encoding without rows (see `without_rows`).
    """

    source: str
    pair_by_pair: bool
    config: dict[str, Any]


@dataclass(frozen=True)
class FuseModel:
    """Parts by label, and two heads."""

    parts: dict[str, Part]
    heads: dict[HeadName, Head]

    def write(self, work: Work) -> None:
        """Write `model.json`."""
        # Python writes floats with the digits needed to read back the same float64.
        text = json.dumps(asdict(self), indent=1) + "\n"
        work.file(MODEL, lambda path: write_text(path, text))


def read_model(folder: Path) -> FuseModel:
    """Read a model. Raises as `model_manifest` does."""
    model_manifest(folder)
    return TypeAdapter(FuseModel).validate_json((folder / MODEL).read_bytes())


def model_manifest(folder: Path) -> Manifest:
    """Read the manifest of a model; raise if the model is missing or from an incompatible version of relabel."""
    if not (folder / MODEL).is_file():
        hint = f"Fit one with `relabel tune fuse --dataset coco --out {folder}`."
        raise MissingError("no fuse model in this folder", where=str(folder), hint=hint)
    manifest = open_artefact(folder, KIND)
    if not manifest.is_current:
        message, hint = "the model was fitted by another version of relabel", "Fit it again with `relabel tune fuse`."
        raise CheckError(message, where=str(folder), hint=hint)
    return manifest


def without_rows(config: Mapping[str, Any]) -> Any:
    """Return the parameters and version of an encoding as JSON values, without its rows and storage."""
    version = version_of("encoding", config.get("source"))
    parameters = {k: v for k, v in config.items() if k not in _STORAGE} | {"version": version}
    # Sorted, because the order of parameters may differ between runs, but the bytes of the model must not.
    return json.loads(json.dumps(parameters, sort_keys=True))
