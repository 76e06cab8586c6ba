"""Labels of any rows: open a lookup once, then read blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from relabel_train.folder import (
    AGAIN,
    MANIFEST,
    ExportFolder,
    LookupFileError,
    MappedArray,
    digest_of,
    open_export,
    read_digests,
)
from relabel_train.ids import Ids
from relabel_train.lookup.arrays import check_arrays, map_arrays, open_blocks, raise_malloc_threshold, rows_of_lines
from relabel_train.lookup.blocks import References
from relabel_train.lookup.format import DESCRIPTION, MISSING, Description, Pooling, parse_description
from relabel_train.samplers import Captions, Missing, mark_usable

if TYPE_CHECKING:
    import torch

    from relabel_train.lookup.device import DeviceLookup

_CELLS = 1 << 23
"""Largest number of scores of single references in memory; larger blocks are filled in pieces."""


def open_lookup(path: str | Path, verify: bool = False) -> Lookup:
    """Open a lookup. Its arrays are mapped and read on demand, so opening takes milliseconds.

    All arrays are of one export, even if another export replaces the folder meanwhile.

    Parameters
    ----------
    path : str or Path
        Folder written by `relabel export lookup`.
    verify : bool
        Compare every byte with the sha256 in `manifest.json` (about a second per GB). False checks types, shapes, sizes
        and the fields of `lookup.json`, and finds every file that was cut short; `relabel verify` finds a changed byte.

    Raises
    ------
    FileNotFoundError
        If there is no lookup.
    LookupFileError
        If a file is missing, damaged or of another format; names the file.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup(tempfile.mkdtemp()))  # or "labels/coco/exports/train/lookup/sbert"
    >>> lookup
    <Lookup example (sbert), all: 6 captions of 3 images, ...>
    """
    folder = Path(path).resolve()
    about, digest, arrays = open_export(folder, DESCRIPTION, MISSING, partial(_open, verify=verify))
    if verify:
        for array in arrays.values():
            array.check()
    return Lookup(folder, about, arrays, digest)


class Lookup:
    """Relevance, same-image marks and neighbours of captions, by corpus row.

    An image is named by the row of any one of its captions. Captions without an encoding raise, or give NaN with
    ``missing="nan"``; `captions` lists the others. Arrays are read-only maps of files, so forked workers share them.
    A pickle holds the folder's name and a digest; spawned workers open the same files without verifying them again.

    Attributes
    ----------
    folder : Path
    about : Description
        Content of `lookup.json`: coverage, range, pooling, orientation, fingerprints.
    rows : range
        Corpus rows covered.
    arrays : dict of str to ndarray
        Read-only maps of all arrays by name, as in relabel_train.lookup.format.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup(tempfile.mkdtemp()))
    >>> rows = lookup.rows_of(["coco:11", "coco:21", "coco:31"])
    >>> lookup.block(rows).round(2)  # images are rows, captions columns
    array([[1.  , 0.94, 0.54],
           [0.8 , 1.  , 0.94],
           [0.28, 0.8 , 1.  ]], dtype=float32)
    >>> lookup.block(rows[:1], rows[1:], pooling="paired").round(2)  # one caption against two
    array([[0.8 , 0.28]], dtype=float32)
    >>> lookup.same_image([0, 1, 2], [0])
    array([[ True],
           [ True],
           [False]])
    >>> near, scores, same_image = lookup.neighbours(rows[:1], k=2)
    >>> lookup.caption_ids(near[0]), scores.round(2), same_image
    (['coco:12', 'coco:21'], array([[0.96, 0.8 ]], dtype=float32), array([[ True, False]]))
    """

    def __init__(self, folder: Path, about: Description, mapped: Mapping[str, MappedArray], digest: str) -> None:
        self.folder, self.about, self.rows, self._digest = folder, about, range(*about.rows), digest
        raise_malloc_threshold()
        arrays = {name: array.array for name, array in mapped.items()}
        self.arrays = arrays
        self._image, self._indptr = arrays["image"], arrays["indptr"]
        self._caption_ids, self._image_ids = Ids.open(arrays, "caption_ids"), Ids.open(arrays, "image_ids")
        check_arrays(about, mapped)
        try:
            self._blocks = open_blocks(about, arrays)
        except (ValueError, IndexError, RecursionError) as error:
            raise LookupFileError(f"{folder}: its arrays do not make a function ({error}). {AGAIN}") from error

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        """Mark the captions without an encoding, by position: (N,) bool."""
        failed = np.zeros(len(self), np.bool_)
        failed[self.arrays["failed"]] = True
        return failed

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        about, (low, high) = self.about, self.about.bounds
        near = "no" if about.neighbours is None else f"{about.neighbours['width']:,}"
        captions = f"{len(self):,} captions of {len(self._indptr) - 1:,} images"
        return (
            f"<Lookup {about.label} ({about.source}), {about.split}: {captions}, relevance {low:g} to {high:g}, "
            f"pooling {about.pooling}, {near} neighbours, {self.folder}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.folder), self._digest)

    def to(self, device: str | torch.device) -> DeviceLookup:
        """Return the lookup with its vectors on a device, where blocks are computed; ValueError without vectors."""
        from relabel_train.lookup.device import DeviceLookup

        return DeviceLookup(self, device)

    def captions(self, pooling: Pooling | None = None) -> Captions:
        """Return the captions whose relevance is a number, for samplers.

        Parameters
        ----------
        pooling : "paired", "max", "mean" or "refs", optional
            The label's default if omitted. Unless it is "paired", all captions of an image are left out if one of its
            references has no encoding.
        """
        paired = (pooling or self.about.pooling) == "paired"
        usable = mark_usable(self._image, self.arrays["failed"], None if paired else self.about.references)
        return Captions.of(self._image, usable, self.rows.start)

    def block(
        self,
        rows: ArrayLike,
        columns: ArrayLike | None = None,
        pooling: Pooling | None = None,
        out: NDArray[Any] | None = None,
        dtype: DTypeLike = np.float32,
        missing: Missing = "raise",
    ) -> NDArray[Any]:
        """Return the exact relevance of images (rows) and captions (columns); its transpose is the text direction.

        Parameters
        ----------
        rows : (B_images,) int
            One caption of each image. `paired`: that caption stands for the image; else its references do
            (``about.references`` first captions).
        columns : (B_captions,) int, optional
            The captions; `rows` by default.
        pooling : "paired", "max", "mean" or "refs", optional
            The label's default if omitted.
        out : (B_images, B_captions) float32 or float64, optional
            Filled and returned.
        dtype : float32 or float64
            Of the result without `out`; products are computed in it.
        missing : "raise" or "nan"
            Raise for captions without an encoding, or return NaN for them.

        Returns
        -------
        (B_images, B_captions)
            Products of float32 vectors differ in their last bits between BLAS libraries; use float64 if that matters.

        Raises
        ------
        IndexError
            Naming the first row that is not covered.
        ValueError
            If the source does not support the pooling, `out` does not fit, or a caption or a reference of an image
            has no encoding; names it.
        """
        how = pooling or self.about.pooling
        if how not in self.about.poolings:
            fine = ", ".join(self.about.poolings)
            raise ValueError(f"{self.about.label} ({self.about.source}) has no pooling {how!r}. Use one of {fine}.")
        images = self._positions(rows)
        captions = images if columns is None else self._positions(columns)
        shape = (len(images), len(captions))
        if out is None:
            out = np.empty(shape, dtype)
        if out.shape != shape or out.dtype not in (np.float32, np.float64):
            raise ValueError(f"out is {out.dtype} {out.shape}; float32 or float64 {shape} is needed")
        # Blocks that fit are filled in one piece; larger ones by rows, or by squares if one row is too long as well.
        step, most = len(captions), self.about.references
        high = max(1, _CELLS // max(1, step * most))
        if high < len(images) and step > high:
            step = high = max(1, int((_CELLS / most) ** 0.5))
        for a in range(0, len(images), high):
            references = References.of(self._image, self._indptr, images[a : a + high], most, how == "paired")
            for b in range(0, len(captions), max(1, step)):
                self._blocks.fill(references, captions[b : b + step], how, out[a : a + high, b : b + step])
            if self.about.failed:
                self._put_missing(references.positions, out[a : a + high], missing)
        if self.about.failed:
            self._put_missing(captions[None], out.T, missing)
        return out

    def _put_missing(self, positions: NDArray[np.int64], out: NDArray[Any], missing: Missing) -> None:
        """Put NaN into the rows of `out`, (B, C), for which one of (W, B) positions has no encoding, or raise."""
        failed = self.failed[positions]
        if missing == "raise" and failed.any():
            position = positions[failed][0]
            name = self._caption_ids.names([position])[0]
            todo = "Draw from `lookup.captions()`, which leaves such captions out, or ask for missing='nan'."
            raise ValueError(
                f"{self.about.label}: caption {name} (row {position + self.rows.start}) has no encoding. {todo}"
            )
        out[failed.any(axis=0)] = np.nan

    def same_image(self, rows: ArrayLike, columns: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Mark the captions of the image itself, by id: (B_images, B_captions) bool."""
        left = self.image_of(rows)
        right = left if columns is None else self.image_of(columns)
        return np.asarray(left[:, None] == right)

    def neighbours(
        self, rows: ArrayLike, k: int | None = None, missing: Missing = "raise"
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.bool_]]:
        """Return the k most relevant captions of each of B captions, best first, ties by row, itself left out.

        Parameters
        ----------
        rows : (B,) int
        k : int, optional
            At most ``about.neighbours["width"]``, the default.
        missing : "raise" or "nan"
            Raise for captions that have fewer than k neighbours (none without an encoding), or pad their lists with row
            -1 and score NaN.

        Returns
        -------
        rows : (B, k) int32
        scores : (B, k) float32
        same_image : (B, k) bool
            True for a neighbour of the same image, by id.

        Raises
        ------
        ValueError
            If the lookup has no neighbours, or not k of them; names the caption that has fewer.
        IndexError
            Naming the first row that is not covered or has no neighbours.
        """
        about = self.about.neighbours
        if about is None:
            todo = "Run `relabel neighbours`, then export again."
            raise ValueError(f"{self.about.label}: this lookup was exported without neighbours. {todo}")
        width, (first, stop) = int(about["width"]), about["rows"]
        k = width if k is None else k
        if not 0 < k <= width:
            raise ValueError(f"{self.about.label} has {width} neighbours per caption; {k} were asked for")
        positions = self._positions(rows)
        # Neighbours may cover fewer rows than the lookup: positions count from their first row.
        query = positions + (self.rows.start - first)
        if len(query) and not 0 <= int(query.min()) <= int(query.max()) < stop - first:
            bad = positions[(query < 0) | (query >= stop - first)][0] + self.rows.start
            raise IndexError(f"row {bad} has no neighbours; rows {first} to {stop - 1} of {about['within']!r} have")
        indptr = self.arrays["neighbours.indptr"]
        slots = indptr[query][:, None] + np.arange(k)
        lacking = slots >= indptr[query + 1][:, None]
        if missing == "raise" and lacking.any():
            i = int(np.flatnonzero(lacking.any(axis=1))[0])
            name, count = self._caption_ids.names(positions[i : i + 1])[0], k - int(lacking[i].sum())
            raise ValueError(
                f"{self.about.label}: caption {name} has {count} neighbours, not {k}. "
                "Leave it out, or ask for missing='nan'."
            )
        # Slots behind a short list belong to the next caption; 0 is valid and overwritten below.
        slots[lacking] = 0
        near, scores = self.arrays["neighbours.rows"][slots], self.arrays["neighbours.scores"][slots]
        near[lacking], scores[lacking] = -1, np.nan
        return near, scores, self._same(positions, near)

    def image_of(self, rows: ArrayLike) -> NDArray[np.int32]:
        """Return the image number of each row, counted from 0 within the rows covered."""
        return self._image[self._positions(rows)]

    def caption_ids(self, rows: ArrayLike) -> list[str]:
        """Return the caption ids of rows."""
        return self._caption_ids.names(self._positions(rows))

    def image_ids(self, rows: ArrayLike) -> list[str]:
        """Return the image ids of rows."""
        return self._image_ids.names(self.image_of(rows))

    def rows_of(self, caption_ids: Iterable[str]) -> NDArray[np.int32]:
        """Return the rows of caption ids.

        Raises
        ------
        KeyError
            Naming the ids that are not covered.
        """
        positions = self._caption_ids.find(caption_ids, "caption")
        return (positions + self.rows.start).astype(np.int32)

    def at_lines(self, index: ArrayLike, captions_per_image: int) -> NDArray[np.int32]:
        """Return the rows of lines of the files of `relabel export scan`; as `relabel_train.lookup.arrays` states.

        `captions_per_image` is that of the export, whose default is 5.
        """
        return rows_of_lines(self.about, self.arrays, index, captions_per_image)

    def rows_of_images(self, image_ids: Iterable[str]) -> NDArray[np.int32]:
        """Return the row of the first caption of each image, which names it in `block`; raises as `rows_of`."""
        positions = self._indptr[self._image_ids.find(image_ids, "image")]
        return (positions + self.rows.start).astype(np.int32)

    def _same(self, positions: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Compare images. A row that is not covered is of another image, since coverage never cuts an image."""
        columns = rows.astype(np.int64) - self.rows.start
        inside = (columns >= 0) & (columns < len(self))
        return np.asarray(inside & (self._image[np.where(inside, columns, 0)] == self._image[positions][:, None]))

    def _positions(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Return positions of corpus rows, after a check that all are covered."""
        array = np.asarray(rows)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise ValueError(f"expected a list of corpus rows, found {array.dtype} {array.shape}")
        positions: NDArray[np.int64] = array.astype(np.int64) - self.rows.start
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < len(self):
            bad = array[(positions < 0) | (positions >= len(self))][0]
            raise IndexError(
                f"row {bad} is not among rows {self.rows.start} to {self.rows.stop - 1}, "
                f"which this lookup of split {self.about.split!r} covers ({self.folder})"
            )
        return positions


def _open(folder: ExportFolder, verify: bool) -> tuple[Description, str, dict[str, MappedArray]]:
    """Map every array of a lookup. Return its description, the digest of lookup.json, and its arrays."""
    about = parse_description(folder)
    if verify:
        # Two files state the sha256 of every array: they agree, or one was replaced.
        digests = read_digests(folder, "lookup", DESCRIPTION)
        for name, entry in about.arrays.items():
            if digest_of(digests, folder.path / f"{name}.npy") != entry.sha256:
                raise LookupFileError(f"{folder.path / MANIFEST}: another sha256 of {name}.npy than {DESCRIPTION}'s.")
    digest = hashlib.sha256(folder.texts[DESCRIPTION]).hexdigest()
    return about, digest, map_arrays(folder, about)


def _reopen(path: str, digest: str) -> Lookup:
    """Open the lookup of another process. `lookup.json`, whose digest is compared, states the sha256 of every array."""
    lookup = open_lookup(path)
    if lookup._digest != digest:
        raise LookupFileError(f"{path}: another lookup was exported there meanwhile. Open it again.")
    return lookup
