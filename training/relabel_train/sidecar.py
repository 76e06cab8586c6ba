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

import io
import json
import mmap
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.files import MAX_JSON, ExportDescription, check_sha256, naming, size_of
from relabel_train.scoring.references import Pooling

DESCRIPTION = "sidecar.json"
INDEX: dict[str, str] = {"index.hashes": "<u8", "index.order": "<i8"}
"""Arrays (K,) next to the shards: 8-byte BLAKE2b of all keys, ascending, and the number of each key. Shards are
numbered by name, keys across all shards."""
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
class SideCarDescription(ExportDescription):
    """Content of `sidecar.json`; `bounds` to `references` are those of relabel_train.lookup.format.

    `layout`: "arrays": the members of this module. "samples": one sample of webdataset per key, for other tools.
    `keys`: meaning of a key: the id of an image or a caption without its namespace, or of an image after the shard's
        name.
    `complete`: True if every key with a label carries all captions of its image.
    `fingerprint`, `corpus`, `lookup`: fingerprints of the side-car, and of the corpus and the lookup behind it.
    `dtype`, `width`, `k`: type of the vectors, D and k; None, 0 and 0 without vectors and neighbours.
    `shards`: by file name, sorted.
    """

    FORMAT: ClassVar[int] = 1

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


@dataclass(slots=True)
class SampleLabels:
    """Labels of one sample: the labels of the n captions of its key.

    Attributes
    ----------
    image_id, image_row : str, int
        Id of the image, and its number in the corpus.
    caption_ids, caption_rows : list of n str, (n,) int32
        Ids and corpus rows.
    vectors, image_vector : (n, D) and (D,) float16 or float32, or None
        Unit vectors, of labels with vectors of captions and of images.
    neighbour_ids, neighbour_scores : lists of n lists of str and of float, or None
        Ids and scores of the neighbours of each caption, best first. None unless requested.
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
    """Labels of one shard. `members`: its texts and arrays by name."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.keys: list[str] = members["keys"]
        self._image_ids, self._caption_ids = members["image_ids"], members["caption_ids"]
        self._images, self._rows = members["images"], members["rows"]
        self._vectors, self._image_vectors = members.get("vectors"), members.get("image_vectors")
        self._neighbour_ids: Any = members.get("neighbour_ids")
        self._neighbours: Any = members.get("neighbours")
        self._scores: Any = members.get("scores")
        # Python's integers: slices by numpy's take three times as long.
        self._starts: list[int] = members["indptr"].tolist()
        self.position_of = {key: i for i, key in enumerate(self.keys)}

    @classmethod
    def open(cls, path: Path, entry: ShardEntry, verify: bool) -> ShardLabels:
        """Map the file of a shard. `verify`: compare its bytes with their sha256."""
        if verify:
            check_sha256(path, entry.sha256)
        with naming(path):
            return cls(_map_members(path))

    def sample(self, position: int, neighbours: bool = False) -> SampleLabels | None:
        """Return the labels of the key at a position; None for a key without labels."""
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
        if neighbours and self._neighbours is not None:
            near = [row[row >= 0].tolist() for row in self._neighbours[start:stop]]
            labels.neighbour_ids = [[self._neighbour_ids[i] for i in row] for row in near]
            scores = self._scores[start:stop]
            labels.neighbour_scores = [row[: len(ids)].tolist() for row, ids in zip(scores, near, strict=True)]
        return labels


def write_tar(file: BinaryIO, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a reproducible tar file: its bytes depend only on names and contents, without times and owners."""
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


def _map_members(path: Path) -> dict[str, Any]:
    """Return the members of a shard by name: lists of texts, and views of arrays."""
    members: dict[str, Any] = {}
    size_of(path)
    with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for member in tar:
            name, _, ending = member.name.removeprefix(PREFIX).rpartition(".")
            start, stop = member.offset_data, member.offset_data + min(member.size, MAX_JSON)
            members[name] = list(map(str, json.loads(raw[start:stop]))) if ending == "json" else _map_array(raw, start)
    return members


def _map_array(raw: mmap.mmap, start: int) -> NDArray[Any]:
    """Return a view of a `.npy` member."""
    header = io.BytesIO(raw[start : start + 4096])
    np.lib.format.read_magic(header)
    shape, _, dtype = np.lib.format.read_array_header_1_0(header)
    # Objects would be addresses that the file chooses.
    if dtype.kind not in "iuf":
        raise ValueError(f"expected numbers, found {dtype}")
    return np.ndarray(shape, dtype, raw, start + header.tell())
