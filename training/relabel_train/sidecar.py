"""Side-cars of webdataset shards: labels by the key of a sample, in shards named like the image shards.

A side-car is a folder with `sidecar.json` and one tar file per shard. The members of a tar are `labels.NAME.json`,
lists of texts, and `labels.NAME.npy`, without pickles. K keys, C captions, D numbers per vector, k neighbours of a
caption, U distinct neighbours:

======================  ==================  ====================================================================
`keys`                  K texts             keys in the order of the image shard
`image_ids`             K texts             "" for a key without a label
`caption_ids`           C texts             captions of all keys, end to end
`neighbour_ids`         U texts
`indptr`                (K + 1,) int64      key i has the captions ``indptr[i]:indptr[i + 1]``; none without a label
`images`                (K,) int32          image number in the corpus, -1 for a key without a label
`rows`                  (C,) int32          corpus rows
`vectors`               (C, D) float        unit vectors; of labels with vectors
`image_vectors`         (K, D) float        of labels with vectors of images
`neighbours`            (C, k) int32        positions in `neighbour_ids`, best first; -1 behind a short list
`scores`                (C, k) float32      relevance of the neighbours; NaN behind a short list
`neighbour_rows`        (U,) int32          corpus rows of the neighbours
======================  ==================  ====================================================================
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.fields import Fields
from relabel_train.folder import AGAIN, ExportFolder, LookupFileError
from relabel_train.lookup.format import POOLINGS, Pooling
from relabel_train.npy_file import read_header

FORMAT = 1
DESCRIPTION = "sidecar.json"
MISSING = "Make a side-car with `relabel export wds`."
INDEX: dict[str, str] = {"index.hashes": "<u8", "index.order": "<i8"}
"""Arrays (K,) beside the shards: 8-byte BLAKE2b of all keys, ascending, and the number of each key. Shards are numbered
by name, keys through all shards."""
TEXTS = ("keys", "image_ids", "caption_ids", "neighbour_ids")
ARRAYS: dict[str, tuple[str, int]] = {
    "indptr": ("<i8", 1),
    "images": ("<i4", 1),
    "rows": ("<i4", 1),
    "vectors": ("<f2 <f4", 2),
    "image_vectors": ("<f2 <f4", 2),
    "neighbours": ("<i4", 2),
    "scores": ("<f4", 2),
    "neighbour_rows": ("<i4", 1),
}
"""Arrays of a shard: name to dtypes and number of dimensions."""
PREFIX = "labels."
"""Start of the name of every member: webdataset reads a shard as one sample with this key."""

Keys = Literal["image", "caption", "shard"]
Layout = Literal["arrays", "samples"]


@dataclass(frozen=True)
class ShardEntry:
    """Counts and sha256 of one shard; `missing` keys have no label."""

    keys: int
    captions: int
    missing: int
    sha256: str


@dataclass(frozen=True)
class SideCarDescription:
    """Content of `sidecar.json`.

    `layout`: "arrays": the members of this module. "samples": one sample of webdataset per key, for other tools.
    `keys`: meaning of a key: the id of an image or a caption without its namespace, or of an image after the shard's
        name.
    `complete`: True if every key with a label carries all captions of its image.
    `source`, `label`, `split`, `fingerprint`, `corpus`, `lookup`: fingerprints of the side-car and of the corpus and
        the lookup that it was made from.
    `bounds`: (float, float); smallest and largest relevance.
    `pooling`, `poolings`, `references`: as in relabel_train.lookup.format.
    `dtype`: type of the vectors; None without vectors.
    `width`, `k`: D and k; 0 without vectors or neighbours.
    `shards`: by file name, sorted.
    """

    layout: Layout
    keys: Keys
    complete: bool
    source: str
    label: str
    split: str
    fingerprint: str
    corpus: str
    lookup: str
    bounds: tuple[float, float]
    pooling: Pooling
    poolings: tuple[Pooling, ...]
    references: int
    dtype: str | None
    width: int
    k: int
    shards: dict[str, ShardEntry]
    format: int = FORMAT

    def to_json(self) -> str:
        """Return stable, readable JSON."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def parse_sidecar(folder: ExportFolder) -> SideCarDescription:
    """Read `sidecar.json` of an open folder."""
    path, body = folder.path / DESCRIPTION, folder.read_json(DESCRIPTION)
    if body.get("format") != FORMAT:
        raise LookupFileError(f"{path}: expected format {FORMAT}, found {body.get('format')!r:.40}. {AGAIN}")
    values = Fields(path, body)
    values.names([field.name for field in fields(SideCarDescription)])
    shards = values.object("shards")
    return SideCarDescription(
        layout=values.text("layout", ["arrays", "samples"]),  # type: ignore[arg-type]
        keys=values.text("keys", ["image", "caption", "shard"]),  # type: ignore[arg-type]
        complete=values.flag("complete"),
        source=values.text("source"),
        label=values.text("label"),
        split=values.text("split"),
        fingerprint=values.text("fingerprint"),
        corpus=values.text("corpus"),
        lookup=values.text("lookup"),
        bounds=values.bounds("bounds"),
        pooling=values.text("pooling", POOLINGS),  # type: ignore[arg-type]
        poolings=values.texts("poolings", POOLINGS),  # type: ignore[arg-type]
        references=values.integer("references", 1),
        dtype=None if body["dtype"] is None else values.text("dtype", ["float16", "float32"]),
        width=values.integer("width"),
        k=values.integer("k"),
        shards={name: _shard_entry(shards.object(name)) for name in sorted(shards.body)},
    )


def _shard_entry(values: Fields) -> ShardEntry:
    values.names([field.name for field in fields(ShardEntry)])
    keys, captions, missing = (values.integer(name) for name in ("keys", "captions", "missing"))
    return ShardEntry(keys, captions, missing, values.text("sha256"))


@dataclass(slots=True)
class SampleLabels:
    """Labels of one sample: those of the n captions that its key carries.

    Attributes
    ----------
    image_id : str
    image_row : int
        Number of the image in the corpus.
    caption_ids : list of n str
    caption_rows : (n,) int32
        Corpus rows.
    vectors : (n, D) float16 or float32, or None
        Unit vectors; None for a label without vectors.
    image_vector : (D,) float16 or float32, or None
        Of labels with vectors of images.
    neighbour_ids : list of n lists of str, or None
        Ids of the most relevant captions of each caption, best first. None unless requested.
    neighbour_scores : list of n lists of float, or None
    """

    image_id: str
    image_row: int
    caption_ids: list[str]
    caption_rows: NDArray[np.int32]
    vectors: NDArray[Any] | None
    image_vector: NDArray[Any] | None
    neighbour_ids: list[list[str]] | None = None
    neighbour_scores: list[list[float]] | None = None


class ShardLabels:
    """Labels of one shard, whose file is mapped.

    `verify`: compare the bytes with their sha256.
    """

    def __init__(self, path: Path, entry: ShardEntry, verify: bool) -> None:
        texts, arrays = _read_tar(path, entry.sha256 if verify else None)
        lists = {name: texts.get(name, []) for name in TEXTS}
        self.keys, self._image_ids, self._caption_ids, self._neighbour_ids = lists.values()
        self._images, self._rows = arrays["images"], arrays["rows"]
        self._vectors, self._image_vectors = arrays.get("vectors"), arrays.get("image_vectors")
        self._neighbours, self._scores = arrays.get("neighbours"), arrays.get("scores")
        captions = [array for array in (self._rows, self._vectors, self._neighbours, self._scores) if array is not None]
        of_keys = [a for a in (self._image_ids, self._images, self._image_vectors) if a is not None]
        # Python's integers: slices by numpy's take three times as long.
        self._starts: list[int] = arrays["indptr"].tolist()
        fits = len(self.keys) == entry.keys == len(self._starts) - 1 and self._starts[-1] == entry.captions
        if not fits or any(len(a) != entry.keys for a in of_keys) or any(len(a) != entry.captions for a in captions):
            raise LookupFileError(f"{path}: its members do not fit each other. {AGAIN}")
        self.position_of = {key: i for i, key in enumerate(self.keys)}

    def sample(self, position: int, neighbours: bool = False) -> SampleLabels | None:
        """Return the labels of the key at a position; None if it has none."""
        start, stop = self._starts[position], self._starts[position + 1]
        if start == stop:
            return None
        vectors, images = self._vectors, self._image_vectors
        labels = SampleLabels(
            self._image_ids[position],
            int(self._images[position]),
            self._caption_ids[start:stop],
            self._rows[start:stop],
            None if vectors is None else vectors[start:stop],
            None if images is None else images[position],
        )
        if neighbours and self._neighbours is not None and self._scores is not None:
            near = [row[row >= 0].tolist() for row in self._neighbours[start:stop]]
            labels.neighbour_ids = [[self._neighbour_ids[i] for i in row] for row in near]
            scores = self._scores[start:stop]
            labels.neighbour_scores = [row[: len(ids)].tolist() for row, ids in zip(scores, near, strict=True)]
        return labels


def write_tar(file: BinaryIO, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a tar file whose bytes depend on its members alone: no times, owners or permissions of this machine.

    `members`: iterable of (str, bytes); name and content.
    """
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, body in members:
            # A TarInfo has time, owner and group 0 by default.
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))


def npy_member(array: NDArray[Any]) -> bytes:
    """Return the content of a `.npy` file."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def json_member(value: Any) -> bytes:
    """Return the content of a `.json` file."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _read_tar(path: Path, sha256: str | None) -> tuple[dict[str, list[str]], dict[str, NDArray[Any]]]:
    """Map the members of a shard: lists of texts, and arrays, by name."""
    texts: dict[str, list[str]] = {}
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with path.open("rb") as file:
            raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if sha256 is not None and (digest := hashlib.sha256(raw).hexdigest()) != sha256:
                raise LookupFileError(f"{path}: expected sha256 {sha256}, found {digest}. {AGAIN}")
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    name, _, ending = member.name.removeprefix(PREFIX).rpartition(".")
                    start, stop = member.offset_data, member.offset_data + member.size
                    if ending == "json" and name in TEXTS:
                        texts[name] = json.loads(raw[start:stop])
                    elif ending == "npy" and name in ARRAYS:
                        arrays[name] = _map_array(raw, start, stop, *ARRAYS[name])
        if (
            not {"keys", "image_ids", "caption_ids"} <= texts.keys()
            or not {"indptr", "images", "rows"} <= arrays.keys()
        ):
            raise ValueError("it lacks members")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: file not found. {AGAIN}") from None
    except (tarfile.TarError, ValueError, OSError) as error:
        if isinstance(error, LookupFileError):
            raise
        raise LookupFileError(f"{path}: not a valid shard of a side-car ({error}). {AGAIN}") from error
    return texts, arrays


def _map_array(raw: mmap.mmap, start: int, stop: int, types: str, dimensions: int) -> NDArray[Any]:
    """Return a view of a `.npy` member."""
    dtype, shape, offset = read_header(io.BytesIO(raw[start : min(stop, start + 4096)]))
    if dtype not in types.split() or len(shape) != dimensions:
        raise ValueError(f"expected {types} of {dimensions} dimensions, found {dtype} {shape}")
    if start + offset + prod(shape) * np.dtype(dtype).itemsize != stop:
        raise ValueError("an array is cut short")
    return np.ndarray(shape, dtype, raw, start + offset)
