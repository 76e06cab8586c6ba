"""Labels of any rows: open a lookup once, then read blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from relabel_train.files import map_array, naming, read_description, verify_files
from relabel_train.html import html_table
from relabel_train.hub import SCHEME, fetch_folder
from relabel_train.lookup.blocks import Blocks, SameImageBlocks
from relabel_train.lookup.cider import CiderBlocks
from relabel_train.lookup.format import CAPTIONS, DESCRIPTION, Description
from relabel_train.lookup.fuse import FuseBlocks
from relabel_train.lookup.rows import LookupRows
from relabel_train.lookup.scores import ScoreBlocks
from relabel_train.lookup.spice import SpiceBlocks
from relabel_train.lookup.vectors import VectorBlocks
from relabel_train.samplers import Captions, Missing, mark_usable
from relabel_train.scoring.references import Pooling
from relabel_train.scoring.scores import GivenScores

if TYPE_CHECKING:
    import pyarrow
    import torch

    from relabel_train.lookup.device import DeviceLookup

_CELLS = 1 << 23
"""Maximum number of scores of single references in memory; larger blocks are filled in pieces."""


def open_lookup(path: str | Path, verify: bool = False) -> Lookup:
    """Open a lookup. Its arrays are memory-mapped and read on demand, so opening takes milliseconds.

    Parameters
    ----------
    path : str or Path
        Folder written by `relabel export lookup`, or ``hf://datasets/OWNER/NAME[@REVISION][/PATH]`` for a dataset of
        the Hugging Face Hub with such a folder. Its files are kept in the hub's cache; this needs huggingface_hub.
    verify : bool
        Compare every byte with the sha256 in `manifest.json` (about a second per GB). False checks only types, shapes
        and sizes; this detects every truncated file.

    Raises
    ------
    FileNotFoundError
        If the folder does not contain a lookup, or the hub does not have it or cannot be reached.
    LookupFileError
        If a file is missing, damaged or of another format; names the file.

    Examples
    --------
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup("example"))  # or "labels/coco/exports/train/lookup/sbert"
    >>> lookup
    <Lookup example (sbert), all: 6 captions of 3 images, ...>
    """
    if isinstance(path, str) and path.startswith(SCHEME):
        path = fetch_folder(path, DESCRIPTION)
    folder = Path(path).resolve()
    hint = "Make a lookup with `relabel export lookup`."
    about = read_description(Description, folder / DESCRIPTION, hint, verify)
    # Check sizes first, to fail before a wrong file is read.
    arrays = {name: map_array(folder / f"{name}.npy", a.dtype, a.shape) for name, a in about.arrays.items()}
    if verify:
        verify_files(folder, [CAPTIONS, *(f"{name}.npy" for name in arrays)])
    with naming(folder / DESCRIPTION):
        if wrong := _find_contradictions(about, arrays):
            raise ValueError(f"wrong values of {wrong}")
        return Lookup(folder, about, arrays)


def _find_contradictions(about: Description, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the fields of a description that contradict the arrays or each other."""
    fits = {
        "rows": about.rows[1] - about.rows[0] == len(arrays["image"]),
        "pooling": about.pooling in about.poolings,
        "references": 0 < about.references < 1 << 16,
        "failed": about.failed == len(arrays["failed"]),
        "curve": about.curve is None or about.curve.is_valid,
    }
    if (near := about.neighbours) is not None:
        first, stop = near["rows"]
        fits["neighbours"] = stop - first == len(arrays["neighbours.indptr"]) - 1
        fits["width"] = 0 <= near["width"] <= len(arrays["neighbours.rows"])
        # The neighbours may be those of another split.
        fits["rows"] &= near["candidates"] != about.split or (first, stop) == about.rows
    return ", ".join(name for name, fit in fits.items() if not fit)


class Lookup(LookupRows):
    """Relevance, same-image marks and neighbours of captions, by corpus row.

    Pass the row of any of its captions to select an image. Captions without an encoding raise an error, or give NaN
    with ``missing="nan"``; `captions` returns all other captions. Arrays are read-only memory maps, so forked workers
    share them. A pickle holds only the path of the folder; spawned workers open the same files without verifying them
    again.

    Attributes
    ----------
    folder : Path
    about : Description
        Content of `lookup.json`: coverage, range, pooling, orientation, fingerprints.
    rows : range
        Corpus rows covered.
    arrays : dict of str to ndarray
        Read-only memory maps of all arrays by name, as in relabel_train.lookup.format.

    Examples
    --------
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup("example"))
    >>> rows = lookup.rows_of(["coco:11", "coco:21", "coco:31"])
    >>> lookup.block(rows).round(2)  # images are rows, captions columns
    array([[1.  , 0.94, 0.54],
           [0.8 , 1.  , 0.94],
           [0.28, 0.8 , 1.  ]], dtype=float32)
    >>> lookup.block(rows[:1], rows[1:], pooling="first").round(2)  # one caption against two
    array([[0.8 , 0.28]], dtype=float32)
    >>> lookup.same_image([0, 1, 2], [0])
    array([[ True],
           [ True],
           [False]])
    >>> near, scores, same_image = lookup.neighbours(rows[:1], k=2)
    >>> lookup.caption_ids(near[0]), scores.round(2), same_image
    (['coco:12', 'coco:21'], array([[0.96, 0.8 ]], dtype=float32), array([[ True, False]]))
    """

    def __init__(self, folder: Path, about: Description, arrays: dict[str, NDArray[Any]]) -> None:
        super().__init__(folder, about, arrays)
        self._blocks = open_blocks(about.kind, arrays, about.sizes, about.params)
        # glibc returns every freed array of more than 128 KiB to the system until it has freed a larger one. The page
        # faults of allocating them again are half of a block's time. This array is never written: it costs nothing.
        np.empty(1 << 20)

    def __repr__(self) -> str:
        about, (low, high) = self.about, self.about.bounds
        near = "no" if about.neighbours is None else f"{about.neighbours['width']:,}"
        captions = f"{len(self):,} captions of {len(self._indptr) - 1:,} images"
        return (
            f"<Lookup {about.label} ({about.source}), {about.split}: {captions}, relevance {low:g} to {high:g}, "
            f"pooling {about.pooling}, {near} neighbours, {self.folder}>"
        )

    def _repr_html_(self) -> str:
        about = self.about
        near = "none" if about.neighbours is None else f"{about.neighbours['width']:,} per caption"
        facts = {
            "label": f"{about.label} ({about.source})",
            "split": about.split,
            "captions": f"{len(self):,}",
            "images": f"{len(self._indptr) - 1:,}",
            "relevance": f"{about.bounds[0]:g} to {about.bounds[1]:g}",
            "pooling": about.pooling,
            "neighbours": near,
            "folder": str(self.folder),
        }
        return html_table("Lookup", [*facts.items()])

    def __reduce__(self) -> tuple[Any, ...]:
        return open_lookup, (str(self.folder),)

    def to(self, device: str | torch.device) -> DeviceLookup:
        """Return the lookup with its vectors on a device, to compute blocks there; ValueError without vectors."""
        from relabel_train.lookup.device import DeviceLookup

        return DeviceLookup(self, device)

    def captions(self, pooling: Pooling | None = None) -> Captions:
        """Return the captions with a relevance that is not NaN, for samplers.

        If one of the references of an image does not have an encoding, all captions of the image are left out, unless
        the pooling (by default the label's) is "first".
        """
        first = (pooling or self.about.pooling) == "first"
        usable = mark_usable(self._image, self.arrays["failed"], None if first else self.about.references)
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
        """Return the exact relevance of images (rows) and captions (columns). Transpose it for text-to-image retrieval.

        Parameters
        ----------
        rows : (B_images,) int
            One caption of each image: its row, or a name that `rows_of` accepts. With pooling "first", this caption
            represents the image, otherwise the image's first ``about.references`` captions.
        columns : (B_captions,) int, optional
            The captions, in the same form; `rows` by default.
        pooling : "first", "max", "mean" or "set", optional
            The label's default if omitted.
        out : (B_images, B_captions) float32 or float64, optional
            Array to fill and return.
        dtype : float32 or float64
            Dtype of the products, and of the result if `out` is not given.
        missing : "raise" or "nan"
            Raise for captions without an encoding, or return NaN for them.

        Returns
        -------
        (B_images, B_captions)
            Relevance within ``about.bounds``. For labels with vectors, equal captions have relevance 1 up to the
            rounding of float32, even if the vectors are stored in float16. Products of float32 vectors differ in their
            last bits between BLAS libraries; use float64 if that matters.

        Raises
        ------
        IndexError
            If a row is not covered. The message names the first one.
        ValueError
            If the source does not support the pooling, `out` does not fit, or a caption or a reference of an image does
            not have an encoding. The message names it.
        """
        how, images = self._pooling(pooling), self._positions(rows)
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
            references = self._references(images[a : a + high], how)
            for b in range(0, len(captions), max(1, step)):
                self._blocks.fill(references, captions[b : b + step], how, out[a : a + high, b : b + step])
            if self.about.failed:
                out[a : a + high][self._check_failed(references.positions, missing)] = np.nan
        if self.about.failed:
            out[:, self._check_failed(captions[None], missing)] = np.nan
        # Rounding may exceed a bound by an ulp, and losses and thresholds of trainers would see it.
        return np.clip(out, *self.about.bounds, out=out)

    def sibling_std(self) -> float:
        """Return the standard deviation of the relevance between two captions of one image, over all images.

        BCLS sets alpha of its Kendall losses to it, "around 0.2" for the authors' label (Li et al., arXiv 2210.11319).
        Captions are compared one by one (pooling "first"), in both orders, and not with themselves. Captions without an
        encoding are left out. ValueError if no image has two captions with an encoding.

        Examples
        --------
        >>> from relabel_train.examples import write_lookup
        >>> from relabel_train.losses import KendallLoss
        >>> lookup = open_lookup(write_lookup("example"))
        >>> round(lookup.sibling_std(), 4)  # the siblings' relevance is 0.96 for all three images
        0.0
        >>> criterion = KendallLoss(alpha=lookup.sibling_std())
        """
        found, images = [], len(self._indptr) - 1
        # Few images at a time, because the majority of a block's pairs are of different images.
        for a in range(0, images, 4):
            rows = np.arange(self._indptr[a], self._indptr[min(a + 4, images)]) + self.rows.start
            block = self.block(rows, pooling="first", dtype=np.float64, missing="nan")
            found.append(block[self.same_image(rows) & ~np.eye(len(rows), dtype=np.bool_)])
        values = np.concatenate(found)
        if not np.isfinite(values).any():
            raise ValueError(f"{self.about.label}: no image of {self.about.split!r} has two captions with an encoding")
        return float(np.nanstd(values))

    def neighbours(
        self, rows: ArrayLike, k: int | None = None, missing: Missing = "raise"
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.bool_]]:
        """Return the k nearest captions of each of B captions, best first and ties by row, without the caption itself.

        Parameters
        ----------
        rows : (B,) int
        k : int, optional
            1 to ``about.neighbours["width"]``, the default.
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
            If the lookup does not have neighbours, or a caption has fewer than k. The message names the caption.
        IndexError
            If a row is not covered or does not have neighbours. The message names the first one.
        """
        about = self.about.neighbours
        if about is None:
            hint = "Run `relabel neighbours`, then export again."
            raise ValueError(f"{self.about.label}: this lookup was exported without neighbours. {hint}")
        width, (first, stop) = int(about["width"]), about["rows"]
        k = width if k is None else k
        if not 0 < k <= width:
            raise ValueError(f"{self.about.label} has {width} neighbours per caption; {k} were asked for")
        positions = self._positions(rows)
        # Neighbours may cover fewer rows than the lookup: positions count from their first row.
        query = positions + (self.rows.start - first)
        if len(query) and not 0 <= int(query.min()) <= int(query.max()) < stop - first:
            bad = positions[(query < 0) | (query >= stop - first)][0] + self.rows.start
            raise IndexError(f"row {bad} has no neighbours; rows {first} to {stop - 1} of {about['candidates']!r} have")
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
        return near, np.clip(scores, *self.about.bounds, out=scores), self._same(positions, near)

    def samples(self, pooling: Pooling | None = None) -> list[dict[str, Any]]:
        """Return caption_id, image_id, position and text of each caption that has labels (see `captions`)."""
        found: list[dict[str, Any]] = self.table().take(self.captions(pooling).rows - self.rows.start).to_pylist()
        return found

    def table(self) -> pyarrow.Table:
        """Return an Arrow table with caption_id, image_id, position and text of all captions, one row per caption.

        `position` counts the captions of an image from 0. The table is read from the file `captions.csv` of the lookup.
        """
        import pyarrow as pa
        from pyarrow import csv

        kinds = {"caption_id": pa.string(), "image_id": pa.string(), "position": pa.int32(), "text": pa.string()}
        return csv.read_csv(
            self.folder / CAPTIONS,
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
        )

    def at_lines(self, index: ArrayLike, captions_per_image: int) -> NDArray[np.int32]:
        """Return the rows of lines of `SPLIT_caps.txt`, as `relabel export scan` writes them.

        The loaders of VSE-infinity, SGRAF, NAAF and CHAN identify a caption by its line number, the `index` of their
        items.

        Parameters
        ----------
        index : (B,) int
            Numbers of lines, from 0; IndexError for a line that does not exist.
        captions_per_image : int
            Lines per image, its first captions, as in the export (5 by default); 0 if all captions have a line.
            ValueError if an image has fewer, or the lookup is of all splits.
        """
        lines = np.asarray(index, np.int64)
        # Lines count from the first caption of a split, and `all` has several.
        if self.about.split == "all":
            raise ValueError(f"{self.about.label}: a file of captions has one split; export a lookup of that split")
        count = (len(self._indptr) - 1) * captions_per_image or len(self)
        if (outside := lines[(lines < 0) | (lines >= count)]).size:
            raise IndexError(f"no line {outside[0]}; {self.about.split} has {count:,} lines")
        if captions_per_image == 0:
            return (lines + self.rows.start).astype(np.int32)
        image, position = np.divmod(lines, captions_per_image)
        positions = self._indptr[image] + position
        if (short := image[positions >= self._indptr[image + 1]]).size:
            few = f"image {short[0]} of {self.about.split} has fewer than {captions_per_image} captions"
            raise ValueError(f"{self.about.label}: {few}; pass the captions_per_image of the export")
        return (positions + self.rows.start).astype(np.int32)

    def _same(self, positions: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Mark rows of the same image. An image is covered completely, so rows not covered are of other images."""
        columns = rows.astype(np.int64) - self.rows.start
        inside = (columns >= 0) & (columns < len(self))
        return np.asarray(inside & (self._image[np.where(inside, columns, 0)] == self._image[positions][:, None]))


def open_blocks(
    kind: str,
    arrays: Mapping[str, NDArray[Any]],
    sizes: Mapping[str, int],
    params: Mapping[str, Any],
) -> Blocks:
    """Return the object that fills the blocks of a kind. Parameters are those of `Description`."""
    # A size is the length of a list that an array stores.
    if max(sizes.values(), default=0) > max(array.size for array in arrays.values()):
        raise ValueError(f"wrong values of sizes: {sizes}")
    if kind == "vectors":
        return VectorBlocks(arrays["vectors"])
    if kind == "image_vectors":
        return VectorBlocks(arrays["vectors"], arrays["image_vectors"], arrays["image"])
    if kind == "features":
        return CiderBlocks.open(arrays, sizes)
    if kind == "scene_graphs":
        return SpiceBlocks.open(arrays, sizes)
    if kind == "baseline":
        return SameImageBlocks(arrays["image"])

    def open_part(prefix: str, part: Mapping[str, Any]) -> Blocks:
        # All parts are about the same captions, so they share image numbers and offsets.
        of_part = {name: arrays[name] for name in ("image", "indptr")}
        of_part |= {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        return open_blocks(part["kind"], of_part, part["sizes"], part)

    if kind == "scores":
        rule = params["scores"]
        gate = open_part("gate.", rule["gate"]) if "gate" in rule else None
        given = GivenScores(arrays["scores.keys"], arrays["scores.values"], len(arrays["image"]))
        return ScoreBlocks(arrays["image"], given, rule["missing"], rule["line"], gate)
    parts = [open_part(f"part{i}.", part) for i, part in enumerate(params["fuse"]["parts"])]
    return FuseBlocks.open(parts, params["fuse"]["heads"])
