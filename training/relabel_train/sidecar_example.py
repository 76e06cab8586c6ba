"""A small side-car for examples and doctests: two keys of one shard, with two captions in all."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np

from relabel_train.folder import MANIFEST
from relabel_train.ids import hash_ids
from relabel_train.sidecar import (
    DESCRIPTION,
    PREFIX,
    ShardEntry,
    SideCarDescription,
    json_member,
    npy_member,
    write_tar,
)


def write_example(folder: str | Path) -> Path:
    """Write a side-car of the keys `0001` and `0002`; return its folder.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.sidecar_example import write_example
    >>> from relabel_train.webdataset import open_sidecar
    >>> open_sidecar(write_example(tempfile.mkdtemp()))
    <SideCar example (sbert), train: 2 keys in 1 shards, vectors of 2 float16>
    """
    out, keys = Path(folder), ["0001", "0002"]
    texts = {"keys": keys, "image_ids": ["mine:0001", "mine:0002"], "caption_ids": ["mine:0001#0", "mine:0002#0"]}
    arrays = {
        "indptr": np.arange(3, dtype="<i8"),
        "images": np.arange(2, dtype="<i4"),
        "rows": np.arange(2, dtype="<i4"),
        "vectors": np.array([[1.0, 0.0], [0.6, 0.8]], "<f2"),
    }
    buffer = io.BytesIO()
    members = [(f"{PREFIX}{name}.json", json_member(value)) for name, value in texts.items()]
    write_tar(buffer, members + [(f"{PREFIX}{name}.npy", npy_member(array)) for name, array in arrays.items()])
    hashes = hash_ids([key.encode() for key in keys])
    order = np.argsort(hashes)
    files = {
        "00000.tar": buffer.getvalue(),
        "index.hashes.npy": npy_member(hashes[order]),
        "index.order.npy": npy_member(order.astype("<i8")),
    }
    entry = ShardEntry(2, 2, 0, hashlib.sha256(files["00000.tar"]).hexdigest())
    about = SideCarDescription(
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
        poolings=("paired", "max", "mean"),
        references=5,
        dtype="float16",
        width=2,
        k=0,
        shards={"00000.tar": entry},
    )
    files[DESCRIPTION] = about.to_json().encode()
    for name, body in files.items():
        (out / name).write_bytes(body)
    manifest: dict[str, object] = {
        "kind": "wds",
        "files": {n: {"sha256": hashlib.sha256(b).hexdigest()} for n, b in files.items()},
    }
    # The digest of a manifest is that of its text without the digest.
    digest = hashlib.sha256(_text(manifest).encode()).hexdigest()
    (out / MANIFEST).write_text(_text({**manifest, "digest": digest}), encoding="utf-8")
    return out


def _text(manifest: dict[str, object]) -> str:
    """Return a manifest in the form that the reader compares it with, to the byte."""
    return json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
