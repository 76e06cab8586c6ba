"""A tiny lookup for examples and first trials."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.folder import MANIFEST
from relabel_train.ids import Ids
from relabel_train.lookup.format import DESCRIPTION, ArrayEntry, Description

_VECTORS = np.array([[1, 0], [0.96, 0.28], [0.8, 0.6], [0.6, 0.8], [0.28, 0.96], [0, 1]], "<f4")
"""Unit vectors of six captions, two per image."""


def write_example(folder: str | Path) -> Path:
    """Write a lookup of six captions of three images, with the five neighbours of each caption.

    Captions are `coco:11`, `coco:12` (of image `coco:1`), `coco:21`, `coco:22`, `coco:31` and `coco:32`, in rows 0 to
    5. Relevance is a cosine, pooled by the maximum.

    Parameters
    ----------
    folder : str or Path
        Made if it does not exist.

    Returns
    -------
    Path
        The folder, for `open_lookup`.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.lookup.example import write_example
    >>> lookup = open_lookup(write_example(tempfile.mkdtemp()))
    >>> len(lookup), lookup.about.pooling
    (6, 'max')
    """
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    arrays = _arrays()
    files = {}
    for name, array in arrays.items():
        np.save(out / f"{name}.npy", array)
        files[f"{name}.npy"] = (out / f"{name}.npy").read_bytes()
    digests = {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()}
    about = Description(
        kind="vectors",
        source="sbert",
        label="example",
        fingerprint="",
        corpus="",
        encoding="",
        neighbours={"fingerprint": "", "rows": [0, 6], "within": "all", "width": 5, "index": None},
        split="all",
        rows=(0, 6),
        bounds=(-1.0, 1.0),
        pooling="max",
        poolings=("paired", "max", "mean"),
        references=5,
        symmetric=True,
        dtype="float32",
        sizes={},
        failed=0,
        params={},
        arrays={name: ArrayEntry(a.dtype.str, a.shape, digests[f"{name}.npy"]) for name, a in arrays.items()},
    )
    (out / DESCRIPTION).write_text(about.to_json(), encoding="utf-8")
    digests[DESCRIPTION] = hashlib.sha256(about.to_json().encode()).hexdigest()
    manifest: dict[str, Any] = {"kind": "lookup", "files": {name: {"sha256": d} for name, d in digests.items()}}
    # The digest of a manifest is that of its text without the digest.
    manifest["digest"] = hashlib.sha256(_text(manifest).encode()).hexdigest()
    (out / MANIFEST).write_text(_text(manifest), encoding="utf-8")
    return out


def _arrays() -> dict[str, NDArray[Any]]:
    """Return the arrays of the lookup by name."""
    scores = _VECTORS @ _VECTORS.T
    # Neighbours by (-score, row), without the caption itself.
    np.fill_diagonal(scores, -np.inf)
    near = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    arrays: dict[str, NDArray[Any]] = {
        "image": np.array([0, 0, 1, 1, 2, 2], "<i4"),
        "indptr": np.array([0, 2, 4, 6], "<i8"),
        "failed": np.array([], "<i4"),
        "vectors": _VECTORS,
        "neighbours.indptr": np.arange(0, 31, 5, dtype="<i8"),
        "neighbours.rows": near.astype("<i4").reshape(-1),
        "neighbours.scores": np.take_along_axis(scores, near, axis=1).reshape(-1),
    }
    captions = Ids.of(["coco:11", "coco:12", "coco:21", "coco:22", "coco:31", "coco:32"])
    return arrays | captions.arrays("caption_ids") | Ids.of(["coco:1", "coco:2", "coco:3"]).arrays("image_ids")


def _text(manifest: dict[str, Any]) -> str:
    """Return a manifest in the form that the reader compares it with, to the byte."""
    return json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
