"""Features of images by id: regions from SCAN's `*_ims.npy`, or proxy features. Arrays are mapped from disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.files import LookupFileError, check_name, map_npy, naming, read_file, verify_files

DESCRIPTION = "features.json"
FORMAT = 1
_AGAIN = "Make the features again."
_SPLITS = ("train", "dev", "val", "testall", "test")


@dataclass(frozen=True, eq=False)
class Features:
    """Vectors of images, by image id.

    `arrays`: sequence of (M_i, R, D) float. `image_ids`: of the M_1 + M_2 + ... rows of all arrays, in order.
    `lengths`: (M,) int64; number of an image's R vectors that count. `proxy`: caveat to show with figures from these
    features; None for features of images. `held_out`: ids of captions that stand in for images.
    """

    arrays: Sequence[NDArray[Any]]
    image_ids: list[str]
    lengths: NDArray[np.int64]
    proxy: str | None = None
    held_out: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def _row(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.image_ids)}

    @property
    def width(self) -> int:
        """D of the vectors."""
        return int(self.arrays[0].shape[2])

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._row

    def digest(self) -> str:
        """Return a sha256 of the ids and shapes, and of the vectors of 64 images spread over the files."""
        vectors, lengths = self.take(_spread(len(self.image_ids)))
        digest = hashlib.sha256(json.dumps([self.image_ids, vectors.shape, lengths.tolist()]).encode())
        digest.update(vectors.tobytes())
        return digest.hexdigest()

    def rows_of(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of images, for `take`."""
        if missing := [name for name in image_ids if name not in self]:
            first = ", ".join(missing[:3])
            raise LookupFileError(
                f"no features of {len(missing):,} of {len(image_ids):,} images; the first are {first}"
            )
        return np.array([self._row[name] for name in image_ids], np.int64)

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read B images: (B, R, D) float32 vectors, and the (B,) int64 numbers of vectors that count."""
        out = np.empty((len(rows), *self.arrays[0].shape[1:]), np.float32)
        starts = np.cumsum([0, *map(len, self.arrays)])
        file = np.searchsorted(starts, rows, side="right") - 1
        for n in np.unique(file).tolist():
            out[file == n] = self.arrays[n][rows[file == n] - starts[n]]
        return out, self.lengths[rows]


def open_features(
    folder: str | Path, *, namespace: str | None = None, position: bool = False, verify: bool = False
) -> Features:
    """Open a folder of features: one with `features.json`, or one with SCAN's `{split}_ims.npy`.

    `namespace`: SCAN: put before every id without it, as `relabel ingest` did (`coco:`). `position`: SCAN: number
    images (`train-0`), as `relabel ingest --ids position` does; otherwise ids are those of `{split}_ids.txt`, one per
    image or per caption. `verify`: proxy features: compare every byte with the sha256 in `manifest.json`.
    """
    path = Path(folder)
    return _open_proxy(path, verify) if (path / DESCRIPTION).is_file() else _open_scan(path, namespace, position)


def _open_scan(folder: Path, namespace: str | None, position: bool) -> Features:
    """Open SCAN's files: `{split}_ims.npy`, (M, R, D) floats, with each image once or once per caption."""
    splits = [name for name in _SPLITS if (folder / f"{name}_ims.npy").is_file()]
    if not splits:
        hint = f"Give a folder of SCAN's features (train_ims.npy, ...), or one with `{DESCRIPTION}`."
        raise FileNotFoundError(f"{folder}: found neither {DESCRIPTION} nor features of a split. {hint}")
    if "testall" in splits and "test" in splits:
        splits.remove("test")  # `testall` begins with it
    arrays, image_ids = [], list[str]()
    prefix = f"{namespace}:" if namespace else ""
    for split in splits:
        array = _map(folder / f"{split}_ims.npy")
        names = [f"{split}-{i}" for i in range(len(array))] if position else _scan_ids(folder, split, len(array))
        # A file with a row per caption repeats each image: a strided view reads it once.
        arrays.append(array[:: len(array) // len(names)])
        image_ids += [prefix + name.removeprefix(prefix) for name in names]
    if len(shapes := {array.shape[1:] for array in arrays}) > 1:
        raise LookupFileError(f"{folder}: files differ in (regions, width): {shapes}")
    if len(set(image_ids)) < len(image_ids):
        twice = next(name for i, name in enumerate(image_ids) if name in image_ids[:i])
        raise LookupFileError(f"{folder}: image {twice} occurs twice")
    return Features(arrays, image_ids, np.full(len(image_ids), arrays[0].shape[1]))


def _scan_ids(folder: Path, split: str, rows: int) -> list[str]:
    """Read the ids of the images of a split with this many rows of features."""
    path = folder / f"{split}_ids.txt"
    with naming(path, "It names the images: put it there, or ingest the captions with `--ids position`."):
        lines = [line.strip() for line in read_file(path).decode().splitlines()]
        # Captions of one image follow each other.
        images = [name for name, _ in groupby(lines)]
        if "" in lines:
            raise ValueError(f"line {lines.index('') + 1} is an empty id")
        if len(set(images)) < len(images):
            raise ValueError("an image comes back after another image")
        if not images or rows % len(images) or (rows > len(images) and len(lines) not in (len(images), rows)):
            found = f"{len(lines):,} ids of {len(images):,} images"
            raise ValueError(f"{found} do not go with the {rows:,} rows of {split}_ims.npy")
    return images


def _open_proxy(folder: Path, verify: bool) -> Features:
    """Open features of captions that stand in for images: `features.json`, float16 shards, lengths, image ids."""
    path = folder / DESCRIPTION
    with naming(path, _AGAIN):
        about = json.loads(read_file(path))
        if about["format"] != FORMAT:
            raise ValueError(f"expected format {FORMAT}, found {about['format']!r:.40}")
        files = [folder / check_name(name) for name in about["files"]]
        names, shape = list(map(str, about["image_ids"])), (about["vectors"], about["width"])
    if verify:
        verify_files(folder, [DESCRIPTION, "lengths.npy", *about["files"]])
    arrays, lengths = [_map(file) for file in files], _array(folder / "lengths.npy")
    found = [array.shape[1:] for array in arrays], (sum(map(len, arrays)), lengths.shape)
    if found != ([shape] * len(arrays), (len(names), (len(names),))) or lengths.dtype.kind not in "iu":
        raise LookupFileError(f"{folder}: shapes and lengths {found} do not fit {DESCRIPTION}. {_AGAIN}")
    return Features(arrays, names, lengths.astype(np.int64), about.get("proxy"), frozenset(about.get("held_out", ())))


def _map(path: Path) -> NDArray[Any]:
    """Map an array and check a few of its images."""
    array = _array(path)
    if array.ndim != 3 or array.dtype.kind != "f" or 0 in array.shape:
        raise LookupFileError(f"{path}: expected (images, regions, width) floats, found {array.dtype} {array.shape}")
    # Images spread over the file: a transfer that was cut short leaves zeros or noise somewhere in it.
    for i in _spread(len(array)).tolist():
        if not np.isfinite(array[i]).all():
            raise LookupFileError(f"{path}: image {i} has a value that is not finite")
    return array


def _array(path: Path) -> NDArray[Any]:
    """Map an array; raise the errors of features."""
    with naming(path, _AGAIN):
        return map_npy(path)


def _spread(count: int) -> NDArray[np.int64]:
    """Return 64 indices, or all, spread over `count`."""
    return np.unique(np.linspace(0, count - 1, 64).astype(np.int64))
