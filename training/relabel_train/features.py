"""What a model sees of images: regions from SCAN's `*_ims.npy`, or a stand-in for them, read by one interface.

``features[image ids]`` is ``((B, R, D) float32, (B,) lengths)``: R vectors an image, of which the first `length` count.
Arrays are mapped from disk; forked workers share them, spawned ones open them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

DESCRIPTION = "features.json"
FORMAT = 1
_LOOKED_AT = 64  # images a file that are read when it is opened
_SPLITS = ("train", "dev", "val", "testall", "test")


class FeaturesError(ValueError):
    """Files of features that are not what they must be."""


class Features:
    """Vectors of images, by image id.

    Parameters
    ----------
    arrays : sequence of (M_i, R, D) float
    ids : sequence of str
        An image id for each of the M_1 + M_2 + ... rows of all arrays, as they come.
    lengths : (M,) int, optional
        How many of an image's R vectors count; all where not given.
    about : dict
        What the files say of themselves; `stand_in` is None, or says what the vectors stand in for.
    reopen : callable
        Opens the same files again, in another process.

    Attributes
    ----------
    width, most : int
        D and R.
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
        self._place = {name: i for i, name in enumerate(ids)}
        self.most, self.width = (int(n) for n in arrays[0].shape[1:])
        full = np.full(len(ids), self.most, np.int64)
        self._lengths = full if lengths is None else np.asarray(lengths, np.int64)

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._place

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen, ()

    @property
    def image_ids(self) -> list[str]:
        """Images, in the order of the files."""
        return list(self._place)

    @property
    def stand_in(self) -> str | None:
        """What to say wherever numbers made of these features appear; None for features of images."""
        return self.about.get("stand_in")

    def places(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """Find where images stand, for `take`.

        Raises
        ------
        KeyError
            Naming the first images that have no features.
        """
        found = np.array([self._place.get(name, -1) for name in image_ids], np.int64)
        if len(lacking := np.flatnonzero(found < 0)):
            first = ", ".join(str(image_ids[i]) for i in lacking[:3])
            raise KeyError(f"no features of {len(lacking):,} of {len(found):,} images; the first are {first}")
        return found

    def take(self, places: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read B images: (B, R, D) float32, and (B,) int64 how many of the R vectors count."""
        out = np.empty((len(places), self.most, self.width), np.float32)
        file = np.searchsorted(self._starts, places, side="right") - 1
        for n in np.unique(file).tolist():
            here = np.flatnonzero(file == n)
            out[here] = self._arrays[n][places[here] - self._starts[n]]
        return out, self._lengths[places]

    def __getitem__(self, image_ids: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read B images by id; see `take`, `places`."""
        return self.take(self.places(image_ids))


def open_features(
    folder: str | Path, *, namespace: str | None = None, ids: Literal["image", "position"] = "image"
) -> Features:
    """Open a folder of features: that of `relabel proxy-features`, or one with SCAN's `{split}_ims.npy`.

    Parameters
    ----------
    folder : str or Path
    namespace : str, optional
        SCAN: put before every id, as `relabel ingest` did (`coco:`).
    ids : "image" or "position"
        SCAN: take image ids from `{split}_ids.txt`, one an image or one a caption; or make them of positions
        (`train-0`), as `relabel ingest --ids position` does.

    Raises
    ------
    FileNotFoundError
        If a file is not there.
    FeaturesError
        If a file is not what it must be; names the file, what was expected and what was found.
    """
    path = Path(folder)
    if (path / DESCRIPTION).is_file():
        return open_proxy(path)
    return open_scan(path, namespace, ids)


def open_scan(folder: Path, namespace: str | None, ids: Literal["image", "position"]) -> Features:
    """Open SCAN's files: `{split}_ims.npy`, (M, R, D) floats, or with each image repeated once a caption; see above."""
    arrays: dict[str, NDArray[Any]] = {}
    for name in _SPLITS:
        path = folder / f"{name}_ims.npy"
        if path.is_file() and not (name == "test" and "testall" in arrays):  # `testall` begins with `test`
            arrays[name] = _map(path)
    if not arrays:
        what = f"no {DESCRIPTION} and none of {', '.join(f'{n}_ims.npy' for n in _SPLITS)}"
        raise FileNotFoundError(f"{folder}: {what}. Give a folder of SCAN's features, or run `relabel proxy-features`.")
    shapes = {name: array.shape[1:] for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise FeaturesError(f"{folder}: files differ in (regions, width): {shapes}")
    names: list[str] = []
    for split, array in list(arrays.items()):
        found, step = _scan_ids(folder / f"{split}_ids.txt", len(array), ids, split)
        arrays[split] = array[::step]
        names += [f"{namespace}:{name}" if namespace else name for name in found]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in set(names[:i]))
        raise FeaturesError(f"{folder}: image {twice} is there twice")
    about = {"kind": "regions", "files": [str(folder / f"{n}_ims.npy") for n in arrays], "stand_in": None}
    return Features(list(arrays.values()), names, None, about, _Reopen(str(folder), namespace, ids))


def open_proxy(folder: Path) -> Features:
    """Open what `relabel proxy-features` wrote: `features.json`, float16 shards, lengths, image ids."""
    path = folder / DESCRIPTION
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        files, names = list(about["files"]), list(about["image_ids"])
        shape = about["vectors"], about["width"]
        if about["format"] != FORMAT:
            raise FeaturesError(f"{path}: expected format {FORMAT}, found {about['format']}. Make it again.")
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise FeaturesError(f"{path}: not a description of features ({error!r}). Make it again.") from error
    arrays = [_map(folder / file) for file in files]
    for file, array in zip(files, arrays, strict=True):
        if array.shape[1:] != shape:
            raise FeaturesError(f"{folder / file}: expected (images, {shape[0]}, {shape[1]}), found {array.shape}")
    lengths = np.load(folder / "lengths.npy", allow_pickle=False)
    if not sum(map(len, arrays)) == len(names) == len(lengths):
        counts = f"{sum(map(len, arrays)):,} vectors' rows, {len(names):,} ids, {len(lengths):,} lengths"
        raise FeaturesError(f"{folder}: {counts}; they must be as many. Make it again.")
    return Features(arrays, names, lengths, about, _Reopen(str(folder), None, "image"))


class _Reopen:
    """Opens a folder again; what a pickle of features is."""

    def __init__(self, folder: str, namespace: str | None, ids: Literal["image", "position"]) -> None:
        self.folder, self.namespace, self.ids = folder, namespace, ids

    def __call__(self) -> Features:
        return open_features(self.folder, namespace=self.namespace, ids=self.ids)


def _map(path: Path) -> NDArray[Any]:
    """Map an array and look at a few of its images."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: not there. Make the features again.") from None
    except (ValueError, EOFError, OSError) as error:
        raise FeaturesError(f"{path}: not a whole .npy file ({error})") from error
    if array.ndim != 3 or array.dtype.kind != "f" or 0 in array.shape:
        raise FeaturesError(f"{path}: expected (images, regions, width) floats, found {array.dtype} {array.shape}")
    for i in np.unique(np.linspace(0, len(array) - 1, _LOOKED_AT).astype(np.int64)).tolist():
        if not np.isfinite(array[i]).all():
            raise FeaturesError(f"{path}: image {i} has a value that is not finite")
    return array


def _scan_ids(path: Path, rows: int, ids: str, split: str) -> tuple[list[str], int]:
    """Return the id of each image, and how many rows of the array each image has."""
    if ids == "position":
        return [f"{split}-{i}" for i in range(rows)], 1
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        todo = 'Put it there, or take ids="position", as the captions were ingested.'
        raise FileNotFoundError(f"{path}: not there; it names the images. {todo}") from None
    if "" in lines:
        raise FeaturesError(f"{path}: line {lines.index('') + 1} is an empty id")
    found = list(dict.fromkeys(lines))
    runs = 1 + sum(a != b for a, b in pairwise(lines))
    if runs != len(found):
        raise FeaturesError(f"{path}: an image comes back after another image")
    each, rest = divmod(rows, len(found)) if found else (0, 1)
    if rest or (each > 1 and len(lines) not in (len(found), rows)):
        what = f"{len(lines):,} ids of {len(found):,} images"
        raise FeaturesError(f"{path}: {what} do not go with the {rows:,} rows of {split}_ims.npy")
    return found, each
