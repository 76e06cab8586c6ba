"""Labels for any rows: open a lookup once, ask it for blocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from relabel_train.lookup.arrays import open_arrays
from relabel_train.lookup.features import FeatureBlocks
from relabel_train.lookup.format import Description, LookupFileError, Pooling, read_description
from relabel_train.lookup.ids import Ids
from relabel_train.lookup.others import FuseBlocks
from relabel_train.lookup.references import Batch, references
from relabel_train.lookup.same_image import SameImageBlocks
from relabel_train.lookup.scene_graphs import SceneGraphBlocks
from relabel_train.lookup.scratch import keep_memory
from relabel_train.lookup.vectors import VectorBlocks

_CELLS = 1 << 23
"""Scores of single references held at once; larger blocks are filled in pieces."""


class Blocks(Protocol):
    """What a kind of lookup answers."""

    def fill(self, images: Batch, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions)."""


def open_lookup(path: str | Path, verify: bool = False) -> Lookup:
    """Open a lookup: milliseconds, whatever its size; arrays are read as they are asked for.

    Parameters
    ----------
    path : str or Path
        The folder that `relabel export lookup` wrote.
    verify : bool
        Hold every byte to its sha256 first.

    Raises
    ------
    FileNotFoundError
        If there is no lookup.
    LookupFileError
        If it is not whole, not what was written or of another format; names the file.
    """
    folder = Path(path).resolve()
    return Lookup(folder, read_description(folder), verify)


class Lookup:
    """Relevance, same-image marks and neighbours of captions, by corpus row.

    An image is named by the row of any one of its captions. Captions without an encoding (`about.failed`) give NaN.
    Arrays are read-only maps of files, so forked workers share them; a pickle is the folder's name, so spawned ones
    open them again.

    Attributes
    ----------
    folder : Path
    about : Description
        Coverage, range, pooling, orientation, fingerprints: what `lookup.json` says.
    rows : range
        Corpus rows covered.
    """

    def __init__(self, folder: Path, about: Description, verify: bool = False) -> None:
        self.folder, self.about, self.rows = folder, about, range(*about.rows)
        keep_memory()
        arrays = open_arrays(folder, about, verify)
        self._arrays = arrays
        self._image, self._indptr = arrays["image"], arrays["indptr"]
        self._caption_ids, self._image_ids = Ids.open(arrays, "caption_ids"), Ids.open(arrays, "image_ids")
        self._blocks = _blocks(about, arrays)
        self._failed: NDArray[np.bool_] | None = None
        if about.failed:
            self._failed = np.zeros(len(self.rows), np.bool_)
            self._failed[arrays["failed"]] = True

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        about = self.about
        return f"<Lookup {about.label} ({about.source}), {about.split}: {len(self):,} captions, {self.folder}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.folder), self.about.fingerprint)

    def block(
        self,
        rows: ArrayLike,
        columns: ArrayLike | None = None,
        pooling: Pooling | None = None,
        out: NDArray[Any] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> NDArray[Any]:
        """Return the exact relevance of images (rows) and captions (columns); its transpose is the text direction.

        Parameters
        ----------
        rows : (B_images,) int
            One caption of each image. `paired`: that caption stands for the image; else its references do
            (``about.references`` first captions).
        columns : (B_captions,) int, optional
            The captions; `rows` where not given.
        pooling : "paired", "max", "mean" or "refs", optional
            The label's own where not given.
        out : (B_images, B_captions) float32 or float64, optional
            Filled and returned.
        dtype : float32 or float64
            Of the answer where there is no `out`; products are taken in it.

        Returns
        -------
        (B_images, B_captions)
            Products of float32 vectors differ in their last bits between BLAS libraries; ask for float64 where that
            matters.

        Raises
        ------
        IndexError
            Naming the first row that is not covered.
        ValueError
            If the pooling makes no sense for this source, or `out` does not fit.
        """
        how = pooling or self.about.pooling
        if how not in self.about.poolings:
            fine = ", ".join(self.about.poolings)
            raise ValueError(f"{self.about.label} ({self.about.source}) has no pooling {how!r}. Use one of {fine}.")
        images = self._places(rows)
        captions = images if columns is None else self._places(columns)
        shape = (len(images), len(captions))
        if out is None:
            out = np.empty(shape, dtype)
        if out.shape != shape or out.dtype not in (np.float32, np.float64):
            raise ValueError(f"out is {out.dtype} {out.shape}; float32 or float64 {shape} is needed")
        step, most = len(captions), self.about.references
        high = max(1, _CELLS // max(1, step * most))
        if high < len(images) and step > high:  # neither side fits: cut into squares
            step = high = max(1, int((_CELLS / most) ** 0.5))
        for a in range(0, len(images), high):
            some = references(self._image, self._indptr, images[a : a + high], most, how == "paired")
            for b in range(0, len(captions), max(1, step)):
                self._blocks.fill(some, captions[b : b + step], how, out[a : a + high, b : b + step])
            if self._failed is not None:
                out[a : a + high][self._failed[some.places].any(axis=0)] = np.nan
        if self._failed is not None:
            out[:, self._failed[captions]] = np.nan
        return out

    def same_image(self, rows: ArrayLike, columns: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Say which captions are of the image itself: (B_images, B_captions) bool, by id."""
        left = self.image_of(rows)
        right = left if columns is None else self.image_of(columns)
        return np.asarray(left[:, None] == right)

    def neighbours(
        self, rows: ArrayLike, k: int | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.bool_]]:
        """Return the k most relevant captions of each of B captions, best first, ties by row, itself left out.

        Parameters
        ----------
        rows : (B,) int
        k : int, optional
            At most, and by default, ``about.neighbours["width"]``.

        Returns
        -------
        rows : (B, k) int32
        scores : (B, k) float32
        same_image : (B, k) bool
            Whether the neighbour is of the same image, by id.

        A caption without an encoding has none: its rows are -1, its scores NaN.

        Raises
        ------
        ValueError
            If the lookup has no neighbours, or not as many.
        IndexError
            Naming the first row that is not covered, or not among those whose neighbours were found.
        """
        about = self.about.neighbours
        if about is None:
            todo = "Run `relabel neighbours`, then export again."
            raise ValueError(f"{self.about.label}: this lookup was exported without neighbours. {todo}")
        width, (first, stop) = int(about["width"]), about["rows"]
        k = width if k is None else k
        if not 0 < k <= width:
            raise ValueError(f"{self.about.label} has {width} neighbours a caption; {k} were asked for")
        places = self._places(rows)
        query = places + (self.rows.start - first)
        if len(query) and not 0 <= int(query.min()) <= int(query.max()) < stop - first:
            bad = places[(query < 0) | (query >= stop - first)][0] + self.rows.start
            raise IndexError(f"row {bad} has no neighbours; rows {first} to {stop - 1} of {about['within']!r} have")
        indptr = self._arrays["neighbours.indptr"]
        at = indptr[query][:, None] + np.arange(k)
        lacking = at >= indptr[query + 1][:, None]  # a caption without an encoding has none
        at[lacking] = 0
        found, scores = self._arrays["neighbours.rows"][at], self._arrays["neighbours.scores"][at]
        found[lacking], scores[lacking] = -1, np.nan
        return found, scores, self._same(places, found)

    def image_of(self, rows: ArrayLike) -> NDArray[np.int32]:
        """Return the image number of each row, counted from 0 within the rows covered."""
        return self._image[self._places(rows)]

    def caption_ids(self, rows: ArrayLike) -> list[str]:
        """Return the caption ids of rows."""
        return self._caption_ids.names(self._places(rows))

    def image_ids(self, rows: ArrayLike) -> list[str]:
        """Return the image ids of rows."""
        return self._image_ids.names(self.image_of(rows))

    def rows_of(self, caption_ids: Iterable[str]) -> NDArray[np.int32]:
        """Find the rows of caption ids.

        Raises
        ------
        KeyError
            Naming the ids that are not covered.
        """
        found = self._caption_ids.find(caption_ids, "caption")
        return (found + self.rows.start).astype(np.int32)

    def rows_of_images(self, image_ids: Iterable[str]) -> NDArray[np.int32]:
        """Find the row of the first caption of each image, which names it in `block`; raises as `rows_of`."""
        found = self._indptr[self._image_ids.find(image_ids, "image")]
        return (found + self.rows.start).astype(np.int32)

    def _same(self, places: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Compare images; a row that is not covered is of another image, since images are covered whole."""
        there = rows.astype(np.int64) - self.rows.start
        inside = (there >= 0) & (there < len(self))
        return np.asarray(inside & (self._image[np.where(inside, there, 0)] == self._image[places][:, None]))

    def _places(self, rows: ArrayLike) -> NDArray[np.int64]:
        given = np.asarray(rows)
        if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
            raise ValueError(f"expected a list of corpus rows, found {given.dtype} {given.shape}")
        places: NDArray[np.int64] = given.astype(np.int64) - self.rows.start
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < len(self):
            bad = given[(places < 0) | (places >= len(self))][0]
            what = f"row {bad} is not among rows {self.rows.start} to {self.rows.stop - 1}"
            raise IndexError(f"{what}, which this lookup of split {self.about.split!r} covers ({self.folder})")
        return places


def _blocks(about: Description, arrays: dict[str, NDArray[Any]]) -> Blocks:
    if about.kind != "others":
        return _own_blocks(about.kind, arrays, about.sizes, about.bounds[1])
    said, parts = about.params["fuse"], []
    for i, part in enumerate(said["parts"]):
        start = f"part{i}."
        own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        shared = {name: arrays[name] for name in ("image", "indptr")}
        parts.append(_own_blocks(part["kind"], shared | own, part["sizes"], part["bounds"][1]))
    return FuseBlocks.open(arrays, parts, said["heads"])


def _own_blocks(kind: str, arrays: dict[str, NDArray[Any]], sizes: dict[str, int], largest: float) -> Blocks:
    if kind == "vectors":
        return VectorBlocks(arrays["vectors"])
    if kind == "features":
        return FeatureBlocks.open(arrays, sizes, largest)
    if kind == "scene_graphs":
        return SceneGraphBlocks.open(arrays, sizes)
    return SameImageBlocks(arrays["image"])


def _reopen(folder: str, fingerprint: str) -> Lookup:
    found = open_lookup(folder)
    if found.about.fingerprint != fingerprint:
        raise LookupFileError(f"{folder}: another lookup was exported there meanwhile. Open it again.")
    return found
