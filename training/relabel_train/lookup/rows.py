"""Rows of a lookup: ids of captions and images, and the references that represent an image in a block."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.ids import Id, Ids, UnknownIdError, hash_ids
from relabel_train.lookup.format import Description
from relabel_train.samplers import Missing
from relabel_train.scoring.references import PaddedReferences, Pooling
from relabel_train.scoring.same_image import same_image

__all__ = ["LookupRows"]

CaptionName = Id | tuple[Id, SupportsIndex | str]
"""A caption id, or an image id with the position or the text of the caption."""


class LookupRows:
    """Captions and images of a lookup, by row and by id; see `Lookup`."""

    def __init__(self, folder: Path, about: Description, arrays: dict[str, NDArray[Any]]) -> None:
        self.folder, self.about, self.arrays = folder, about, arrays
        self.rows = range(*about.rows)
        self._image, self._indptr = arrays["image"], arrays["indptr"]
        self._name = f"this lookup of split {about.split!r}"
        self._caption_ids, self._image_ids = Ids.open(arrays, "caption_ids"), Ids.open(arrays, "image_ids")

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        """Mark the captions without an encoding, by position: (N,) bool."""
        failed = np.zeros(len(self), np.bool_)
        failed[self.arrays["failed"]] = True
        return failed

    def same_image(self, rows: ArrayLike, columns: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Mark the captions of the image itself, by id: (B_images, B_captions) bool."""
        left = self.image_of(rows)
        right = left if columns is None else self.image_of(columns)
        return same_image(left, right)

    def image_of(self, rows: ArrayLike) -> NDArray[np.int32]:
        """Return the image number of each row, counted from 0 within the rows covered."""
        return self._image[self._positions(rows)]

    def caption_ids(self, rows: ArrayLike) -> list[str]:
        """Return the caption ids of rows."""
        return self._caption_ids.names(self._positions(rows))

    def image_ids(self, rows: ArrayLike) -> list[str]:
        """Return the image ids of rows."""
        return self._image_ids.names(self.image_of(rows))

    def rows_of(self, captions: Iterable[CaptionName]) -> NDArray[np.int32]:
        """Return the rows of captions.

        Parameters
        ----------
        captions : (B,) iterable
            Caption ids; or pairs of an image id and the caption's position among the captions of the image, from 0; or
            pairs of an image id and the caption's text. Ids are str, UTF-8 bytes or int (3 is the id "3", not a row),
            with or without the prefix of the dataset. If an image has a text twice, the first one counts.

        Returns
        -------
        (B,) int32

        Raises
        ------
        KeyError
            If a caption is not covered. The message names such captions.

        Examples
        --------
        >>> from relabel_train.examples import write_lookup
        >>> from relabel_train.lookup import open_lookup
        >>> lookup = open_lookup(write_lookup("example"))
        >>> lookup.rows_of(["coco:21", "31"])
        array([2, 4], dtype=int32)
        >>> lookup.rows_of([("coco:2", 0), (3, "a red bus")])
        array([2, 5], dtype=int32)
        """
        names = list(captions)
        if any(isinstance(name, tuple | list) for name in names):
            positions = self._of_images(names)  # type: ignore[arg-type]
        else:
            positions = self._caption_ids.find(names, "caption", self._name)  # type: ignore[arg-type]
        return (positions + self.rows.start).astype(np.int32)

    def _of_images(self, pairs: Sequence[tuple[str | bytes, SupportsIndex | str]]) -> NDArray[np.int64]:
        """Return the positions of captions that are named by their image."""
        if odd := [pair for pair in pairs if not isinstance(pair, tuple | list) or len(pair) != 2]:
            raise TypeError(f"expected pairs of an image and a position or text, found {odd[0]!r}")
        pairs = [(image, caption.decode() if isinstance(caption, bytes) else caption) for image, caption in pairs]
        images = self._image_ids.find([image for image, _ in pairs], "image", self._name)
        hashes = hash_ids([caption.strip().encode() if isinstance(caption, str) else b"" for _, caption in pairs])
        positions = np.empty(len(pairs), np.int64)
        for i, (m, (name, caption)) in enumerate(zip(images.tolist(), pairs, strict=True)):
            start, stop = self._indptr[m : m + 2].tolist()
            if isinstance(caption, str):
                found = start + np.flatnonzero(self.arrays["texts"][start:stop] == hashes[i])
            elif self._ids_have_positions:
                # Numbers go on where a caption was left out.
                made = f"{self._image_ids.names([m])[0]}#{operator.index(caption)}"
                found = self._caption_ids.positions([made])
                found = found[found >= 0]
            else:
                found = np.arange(start, stop)[operator.index(caption) :][:1] if operator.index(caption) >= 0 else ()
            if not len(found):
                what = "text" if isinstance(caption, str) else "position"
                raise UnknownIdError(f"image {name!r} has no caption of {what} {caption!r} in {self.about.split!r}")
            positions[i] = found[0]
        return positions

    @cached_property
    def _ids_have_positions(self) -> bool:
        """True if caption ids consist of image id and position."""
        return self._caption_ids.names([0])[0].startswith(f"{self._image_ids.names([0])[0]}#")

    def rows_of_images(self, image_ids: Iterable[Id]) -> NDArray[np.int32]:
        """Return the row that represents each image in `block`, its first caption; raises as `rows_of`."""
        positions = self._indptr[self._image_ids.find(image_ids, "image", self._name)]
        return (positions + self.rows.start).astype(np.int32)

    def _pooling(self, pooling: Pooling | None) -> Pooling:
        """Return a supported pooling, the label's default for None; raise ValueError for other poolings."""
        how = pooling or self.about.pooling
        if how not in self.about.poolings:
            fine = ", ".join(self.about.poolings)
            raise ValueError(f"{self.about.label} ({self.about.source}) has no pooling {how!r}. Use one of {fine}.")
        return how

    def _references(self, positions: NDArray[np.int64], pooling: Pooling) -> PaddedReferences:
        """Return the references that represent the images of captions."""
        most = self.about.references
        return PaddedReferences.of_images(self._image, self._indptr, positions, most, pooling == "first")

    def _check_failed(self, positions: NDArray[np.int64], missing: Missing) -> NDArray[np.bool_]:
        """Mark the columns of (W, B) positions in which one has no encoding, or raise for the first one."""
        failed = self.failed[positions]
        if missing == "raise" and failed.any():
            position = positions[failed][0]
            name = self._caption_ids.names([position])[0]
            hint = "Draw from `lookup.captions()`, which leaves such captions out, or ask for missing='nan'."
            raise ValueError(
                f"{self.about.label}: caption {name} (row {position + self.rows.start}) has no encoding. {hint}"
            )
        return np.asarray(failed.any(axis=0))

    def _positions(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Return positions of corpus rows, after a check that all are covered."""
        if isinstance(rows, list | tuple) and len(rows) and isinstance(rows[0], str | bytes | tuple):
            rows = self.rows_of(rows)
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
