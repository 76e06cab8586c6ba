"""Features of images by id: regions from SCAN's `*_ims.npy`, or proxy features.

``features[image ids]`` is ``((B, R, D) float32, (B,) lengths)``: R vectors per image, of which the first `length`
count. Arrays are mapped from disk; forked workers share them, spawned ones open them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.files import LookupFileError, check_name, map_npy, naming, read_file, verify_files

DESCRIPTION = "features.json"
FORMAT = 1
_AGAIN = "Make the features again."
_CHECKED = 64  # images per file that are checked when it is opened
_SPLITS = ("train", "dev", "val", "testall", "test")


class Features:
    r"""Vectors of images, by image id.

    `arrays`: sequence of (M_i, R, D) float. `ids`: image ids of the M_1 + M_2 + ... rows of all arrays, in order.
    `lengths`: (M,) int; number of an image's R vectors that count; all by default. `about`: description of the files;
    `proxy` is None, or a caveat for features that are no image features. `reopen`: opens the same files in another
    process. `width`, `most`: D and R.
    """

    def __init__(
        self,
        arrays: Sequence[NDArray[Any]],
        ids: Sequence[str],
        lengths: NDArray[np.integer[Any]] | None,
        about: dict[str, Any],
        reopen: Callable[[], Features],
    ) -> None:
        self._arrays, self.about, self._reopen = list(arrays), about, reopen
        self._starts = np.cumsum([0, *(len(a) for a in arrays)])
        self._row = {name: i for i, name in enumerate(ids)}
        self.most, self.width = (int(n) for n in arrays[0].shape[1:])
        full = np.full(len(ids), self.most, np.int64)
        self._lengths = full if lengths is None else np.asarray(lengths, np.int64)

    def __len__(self) -> int:
        return len(self._row)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._row

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen, ()

    @property
    def image_ids(self) -> list[str]:
        """Image ids in the order of the files."""
        return list(self._row)

    @property
    def proxy(self) -> str | None:
        """Caveat to show with figures from these features; None for features of images."""
        return self.about.get("proxy")

    def digest(self) -> str:
        """Return a sha256 of the ids and shapes, and of the vectors of 64 images spread over the files."""
        rows = np.unique(np.linspace(0, len(self) - 1, 64).astype(np.int64))
        vectors, lengths = self.take(rows)
        digest = hashlib.sha256(json.dumps([self.image_ids, self.most, self.width, lengths.tolist()]).encode())
        digest.update(np.ascontiguousarray(vectors).tobytes())
        return digest.hexdigest()

    def rows_of(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of images, for `take`."""
        rows = np.array([self._row.get(name, -1) for name in image_ids], np.int64)
        if len(lacking := np.flatnonzero(rows < 0)):
            first = ", ".join(str(image_ids[i]) for i in lacking[:3])
            raise LookupFileError(f"no features of {len(lacking):,} of {len(rows):,} images; the first are {first}")
        return rows

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read B images: (B, R, D) float32 vectors, and the (B,) int64 numbers of vectors that count."""
        out = np.empty((len(rows), self.most, self.width), np.float32)
        # One gather per file; float16 is widened on the way.
        file = np.searchsorted(self._starts, rows, side="right") - 1
        for n in np.unique(file).tolist():
            of_file = np.flatnonzero(file == n)
            out[of_file] = self._arrays[n][rows[of_file] - self._starts[n]]
        return out, self._lengths[rows]

    def __getitem__(self, image_ids: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read B images by id, as `take`; raises as `rows_of`."""
        return self.take(self.rows_of(image_ids))


def open_features(
    folder: str | Path,
    *,
    namespace: str | None = None,
    ids: Literal["image", "position"] = "image",
    verify: bool = False,
) -> Features:
    """Open a folder of features: one with `features.json`, or one with SCAN's `{split}_ims.npy`.

    `namespace`: SCAN: put before every id without it, as `relabel ingest` did (`coco:`). `ids`: SCAN: read image ids
    from `{split}_ids.txt`, one per image or per caption; or number positions (`train-0`), as `relabel ingest --ids
    position` does. `verify`: proxy features: compare every byte with the sha256 in `manifest.json`.
    """
    path = Path(folder)
    if (path / DESCRIPTION).is_file():
        return open_proxy(path, verify)
    return open_scan(path, namespace, ids)


def open_scan(folder: Path, namespace: str | None, ids: Literal["image", "position"]) -> Features:
    """Open SCAN's files: `{split}_ims.npy`, (M, R, D) floats, with each image once or once per caption."""
    arrays: dict[str, NDArray[Any]] = {}
    for name in _SPLITS:
        path = folder / f"{name}_ims.npy"
        if path.is_file() and not (name == "test" and "testall" in arrays):  # `testall` begins with `test`
            arrays[name] = _map(path)
    if not arrays:
        names = ", ".join(f"{name}_ims.npy" for name in _SPLITS)
        todo = f"Give a folder of SCAN's features, or one with `{DESCRIPTION}`."
        raise FileNotFoundError(f"{folder}: no {DESCRIPTION} and none of {names}. {todo}")
    shapes = {name: array.shape[1:] for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise LookupFileError(f"{folder}: files differ in (regions, width): {shapes}")
    all_ids: list[str] = []
    for split, array in list(arrays.items()):
        image_ids, step = _scan_ids(folder / f"{split}_ids.txt", len(array), ids, split)
        # A file with a row per caption repeats each image: a strided view reads it once.
        arrays[split] = array[::step]
        prefix = f"{namespace}:" if namespace else ""
        all_ids += [name if name.startswith(prefix) else prefix + name for name in image_ids]
    if len(set(all_ids)) < len(all_ids):
        twice = next(name for i, name in enumerate(all_ids) if name in set(all_ids[:i]))
        raise LookupFileError(f"{folder}: image {twice} occurs twice")
    about = {"kind": "regions", "files": [str(folder / f"{n}_ims.npy") for n in arrays], "proxy": None}
    reopen = partial(open_features, str(folder), namespace=namespace, ids=ids)
    return Features(list(arrays.values()), all_ids, None, about, reopen)


def open_proxy(folder: Path, verify: bool = False) -> Features:
    """Open features of captions that stand in for images: `features.json`, float16 shards, lengths, image ids."""
    path = folder / DESCRIPTION
    if verify:
        verify_files(folder, [DESCRIPTION])
    with naming(path, _AGAIN):
        about = json.loads(read_file(path))
        if about["format"] != FORMAT:
            raise ValueError(f"expected format {FORMAT}, found {about['format']!r:.40}")
        files = [folder / check_name(name) for name in about["files"]]
        names, shape = list(map(str, about["image_ids"])), (about["vectors"], about["width"])
    arrays, lengths = [_map(file) for file in files], _array(folder / "lengths.npy")
    if verify:
        verify_files(folder, ["lengths.npy", *about["files"]])
    found = [array.shape[1:] for array in arrays], (sum(map(len, arrays)), lengths.shape)
    if found != ([shape] * len(arrays), (len(names), (len(names),))) or lengths.dtype.kind not in "iu":
        raise LookupFileError(f"{folder}: shapes and lengths {found} do not fit {DESCRIPTION}. {_AGAIN}")
    return Features(arrays, names, lengths, about, partial(open_features, str(folder)))


def _map(path: Path) -> NDArray[Any]:
    """Map an array and check a few of its images."""
    array = _array(path)
    if array.ndim != 3 or array.dtype.kind != "f" or 0 in array.shape:
        raise LookupFileError(f"{path}: expected (images, regions, width) floats, found {array.dtype} {array.shape}")
    # Images spread over the file: a transfer that was cut short leaves zeros or noise somewhere in it.
    for i in np.unique(np.linspace(0, len(array) - 1, _CHECKED).astype(np.int64)).tolist():
        if not np.isfinite(array[i]).all():
            raise LookupFileError(f"{path}: image {i} has a value that is not finite")
    return array


def _array(path: Path) -> NDArray[Any]:
    """Map an array; raise the errors of features."""
    with naming(path, _AGAIN):
        return map_npy(path)


def _scan_ids(path: Path, rows: int, ids: str, split: str) -> tuple[list[str], int]:
    """Return the id of each image, and the number of array rows per image."""
    if ids == "position":
        return [f"{split}-{i}" for i in range(rows)], 1
    with naming(path, 'It names the images: put it there, or take ids="position", as the captions were ingested.'):
        lines = [line.strip() for line in read_file(path).decode().splitlines()]
    if "" in lines:
        raise LookupFileError(f"{path}: line {lines.index('') + 1} is an empty id")
    images = list(dict.fromkeys(lines))
    # Captions of one image are neighbours, so there are as many runs of equal ids as images.
    runs = 1 + sum(a != b for a, b in pairwise(lines))
    if runs != len(images):
        raise LookupFileError(f"{path}: an image comes back after another image")
    each, rest = divmod(rows, len(images)) if images else (0, 1)
    if rest or (each > 1 and len(lines) not in (len(images), rows)):
        raise LookupFileError(
            f"{path}: {len(lines):,} ids of {len(images):,} images do not go with the {rows:,} rows of {split}_ims.npy"
        )
    return images, each
