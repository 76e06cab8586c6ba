"""A tiny lookup and a small side-car for examples and first trials."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train import sidecar
from relabel_train.files import MANIFEST
from relabel_train.ids import Ids, hash_ids
from relabel_train.lookup.format import CAPTIONS, DESCRIPTION, ArrayEntry, Description
from relabel_train.scoring.calibration import CalibrationCurve

_VECTORS = np.array([[1, 0], [0.96, 0.28], [0.8, 0.6], [0.6, 0.8], [0.28, 0.96], [0, 1]], "<f4")
"""Unit vectors of six captions, two per image."""


def write_lookup(folder: str | Path) -> Path:
    """Write a lookup of six captions of three images, with the five neighbours of each caption.

    Captions are `coco:11`, `coco:12` (of image `coco:1`), `coco:21`, `coco:22`, `coco:31` and `coco:32`, in rows 0 to
    5. Relevance is a cosine, pooled by the maximum. The folder is made, and returned for `open_lookup`.
    """
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
    texts = ["a dog runs", "a brown dog", "a cat sits", "a black cat", "a bus", "a red bus"]
    arrays["texts"] = hash_ids([text.encode() for text in texts])
    captions = Ids.of(["coco:11", "coco:12", "coco:21", "coco:22", "coco:31", "coco:32"])
    arrays |= captions.arrays("caption_ids") | Ids.of(["coco:1", "coco:2", "coco:3"]).arrays("image_ids")
    files = {f"{name}.npy": sidecar.npy_member(array) for name, array in arrays.items()}
    about = Description(
        kind="vectors",
        source="sbert",
        label="example",
        fingerprint="",
        corpus="",
        encoding="",
        neighbours={"fingerprint": "", "rows": [0, 6], "candidates": "all", "width": 5, "index": None},
        split="all",
        rows=(0, 6),
        bounds=(-1.0, 1.0),
        pooling="max",
        poolings=("first", "max", "mean"),
        references=5,
        symmetric=True,
        dtype="float32",
        sizes={},
        failed=0,
        params={},
        curve=CalibrationCurve((0.0, 0.5, 1.0), (1.0, 3.0, 4.5), (0.0, 0.4, 0.9), own=(4.9, 0.99)),
        arrays={name: ArrayEntry(a.dtype.str, a.shape, _sha256(files[f"{name}.npy"])) for name, a in arrays.items()},
    )
    names = zip(captions.names(range(6)), (f"coco:{i // 2 + 1}" for i in range(6)), texts, strict=True)
    lines = [f'"{name}","{image}",{i % 2},"{text}"\n' for i, (name, image, text) in enumerate(names)]
    files[CAPTIONS] = "".join(['"caption_id","image_id","position","text"\n', *lines]).encode()
    return _write(Path(folder), "lookup", files | {DESCRIPTION: about.to_json().encode()})


def write_sidecar(folder: str | Path) -> Path:
    """Write a side-car of one shard with the keys `0001` and `0002`, each with one caption; return its folder."""
    keys = ["0001", "0002"]
    texts = {"keys": keys, "image_ids": ["mine:0001", "mine:0002"], "caption_ids": ["mine:0001#0", "mine:0002#0"]}
    arrays = {
        "indptr": np.arange(3, dtype="<i8"),
        "images": np.arange(2, dtype="<i4"),
        "rows": np.arange(2, dtype="<i4"),
        "vectors": np.array([[1.0, 0.0], [0.6, 0.8]], "<f2"),
    }
    buffer = io.BytesIO()
    members = [(f"{sidecar.PREFIX}{name}.json", sidecar.json_member(value)) for name, value in texts.items()]
    members += [(f"{sidecar.PREFIX}{name}.npy", sidecar.npy_member(array)) for name, array in arrays.items()]
    sidecar.write_tar(buffer, members)
    hashes = hash_ids([key.encode() for key in keys])
    order = np.argsort(hashes)
    files = {
        "00000.tar": buffer.getvalue(),
        "index.hashes.npy": sidecar.npy_member(hashes[order]),
        "index.order.npy": sidecar.npy_member(order.astype("<i8")),
    }
    about = sidecar.SideCarDescription(
        layout="arrays",
        keys="image",
        complete=True,
        source="sbert",
        label="example",
        split="train",
        fingerprint="",
        corpus="",
        lookup="",
        bounds=(-1.0, 1.0),
        pooling="max",
        poolings=("first", "max", "mean"),
        references=5,
        dtype="float16",
        width=2,
        k=0,
        shards={"00000.tar": sidecar.ShardEntry(2, 2, 0, _sha256(files["00000.tar"]))},
    )
    return _write(Path(folder), "wds", files | {sidecar.DESCRIPTION: about.to_json().encode()})


def _write(out: Path, kind: str, files: Mapping[str, bytes]) -> Path:
    """Write the files of an export and its manifest."""
    out.mkdir(parents=True, exist_ok=True)
    for name, body in files.items():
        (out / name).write_bytes(body)
    manifest: dict[str, Any] = {"kind": kind, "files": {name: {"sha256": _sha256(b)} for name, b in files.items()}}
    (out / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return out


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
