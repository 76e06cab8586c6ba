"""Arrays of a lookup: mapped, compared with their description and with each other, and opened as blocks of a kind.

Lines of SCAN's files, by which the loaders of VSE-infinity, SGRAF, NAAF and CHAN know a caption, are looked up in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.folder import AGAIN, ExportFolder, LookupFileError, MappedArray
from relabel_train.ids import check_ids
from relabel_train.lookup.blocks import Blocks, SameImageBlocks
from relabel_train.lookup.cider import CiderBlocks
from relabel_train.lookup.format import Description
from relabel_train.lookup.fuse import FuseBlocks
from relabel_train.lookup.spice import SpiceBlocks
from relabel_train.lookup.vectors import VectorBlocks


def map_arrays(folder: ExportFolder, about: Description) -> dict[str, MappedArray]:
    """Map every array of a lookup."""
    arrays = {}
    for name, (types, dimensions) in about.schema.items():
        entry = about.arrays[name]
        # The description must fit the format before the file is compared with the description.
        if entry.dtype not in types.split() or len(entry.shape) != dimensions:
            wanted = f"{types.replace(' ', ' or ')} of {dimensions} dimensions"
            raise LookupFileError(f"{folder.path / name}.npy: expected {wanted}, found {entry.shape}. {AGAIN}")
        arrays[name] = folder.map(f"{name}.npy", entry.dtype, entry.shape, entry.sha256)
    return arrays


def check_arrays(about: Description, arrays: Mapping[str, MappedArray]) -> None:
    """Check that arrays fit the description and each other, as far as their lengths and ends show."""
    _check_captions(about, arrays)
    _check_neighbours(about, arrays)
    kinds = {"": (about.kind, about.sizes)}
    # The arrays of each part of a fused label lie under its prefix.
    if about.kind == "others":
        kinds |= {f"part{i}.": (p["kind"], p["sizes"]) for i, p in enumerate(about.params["fuse"]["parts"])}
    for prefix, (kind, sizes) in kinds.items():
        of_kind = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        _check_kind(kind, sizes, len(range(*about.rows)), arrays["image_ids.order"].array.size, of_kind)


def _check_captions(about: Description, arrays: Mapping[str, MappedArray]) -> None:
    """Check image numbers, failed positions and ids."""
    count = about.rows[1] - about.rows[0]
    image, failed = arrays["image"], arrays["failed"]
    image.check_length(count)
    failed.check_length(about.failed)
    # Images are numbered in order, so the last caption's number gives their count.
    images = int(image.array[-1]) + 1
    arrays["indptr"].check_offsets(images, image)
    positions = failed.array
    if len(positions) and (positions[0] < 0 or positions[-1] >= count or (np.diff(positions) <= 0).any()):
        failed.refuse(f"ascending positions below {count}", positions)
    check_ids(arrays, "caption_ids", count)
    check_ids(arrays, "image_ids", images)


def _check_neighbours(about: Description, arrays: Mapping[str, MappedArray]) -> None:
    """Check the lists of neighbours, if the lookup has them."""
    if about.neighbours is None:
        return
    first, stop = about.neighbours["rows"]
    indptr, rows, scores = (arrays[f"neighbours.{name}"] for name in ("indptr", "rows", "scores"))
    indptr.check_offsets(stop - first, rows)
    scores.check_length(rows.array.size)
    # Offsets are read completely: a falling one would mix the neighbours of two captions.
    sizes = np.diff(indptr.array)
    if sizes.min() < 0 or sizes.max() != about.neighbours["width"]:
        indptr.refuse(f"at most {about.neighbours['width']} neighbours per caption", sizes.max())


def _check_kind(
    kind: str, sizes: Mapping[str, int], count: int, images: int, arrays: Mapping[str, MappedArray]
) -> None:
    """Check the arrays of one of format.KINDS, of N captions and M images."""
    if kind in ("vectors", "image_vectors"):
        arrays["vectors"].check_length(count)
        if kind == "image_vectors":
            _check_image_vectors(arrays["image_vectors"], images, arrays["vectors"].array.shape[1])
    elif kind == "features":
        columns = arrays["features.columns"]
        arrays["features.indptr"].check_offsets(count, columns)
        for name in ("reference", "candidate"):
            arrays[f"features.{name}"].check_length(columns.array.size)
        arrays["features.length"].check_length(count)
        arrays["siblings.start"].check_length(images)
        if not sizes["frequent"] <= sizes["columns"] <= columns.array.size:
            columns.refuse(f"entries of {sizes['columns']} columns, {sizes['frequent']} of them frequent", None)
    elif kind == "scene_graphs":
        tuples = arrays["scene_graphs.tuples"]
        for offsets, values, parts in (
            ("indptr", "tuples", count),
            ("caption_indptr", "caption_matches", count),
            ("image_indptr", "image_matches", images),
        ):
            arrays[f"scene_graphs.{offsets}"].check_offsets(parts, arrays[f"scene_graphs.{values}"])
        arrays["scene_graphs.image_size"].check_length(images)
        if sizes["tuples"] > tuples.array.size:
            tuples.refuse(f"{sizes['tuples']} distinct tuples", tuples.array.size)


def _check_image_vectors(vectors: MappedArray, images: int, width: int) -> None:
    """Check that there is one vector per image, of the width of the captions' vectors."""
    vectors.check_length(images)
    if vectors.array.shape[1] != width:
        vectors.refuse(f"vectors of width {width}, as those of the captions", vectors.array.shape[1])


def raise_malloc_threshold() -> None:
    """Make glibc keep freed arrays for the next call.

    glibc returns every freed array of more than 128 KiB to the system until it has freed a larger one. The page faults
    of allocating them again are half of a block's time. The larger array is never written to, so it costs nothing.
    """
    np.empty(1 << 20)


def open_blocks(about: Description, arrays: dict[str, NDArray[Any]]) -> Blocks:
    """Return the function that fills blocks, of a single source or of several that are fused.

    `arrays`: all arrays of the lookup by name.
    """
    if about.kind != "others":
        return _source_blocks(about.kind, arrays, about.sizes, about.bounds[1])
    fuse, parts = about.params["fuse"], []
    # All parts are about the same captions, so they share image numbers and offsets.
    shared = {name: arrays[name] for name in ("image", "indptr")}
    for i, part in enumerate(fuse["parts"]):
        start = f"part{i}."
        of_part = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        parts.append(_source_blocks(part["kind"], shared | of_part, part["sizes"], part["bounds"][1]))
    return FuseBlocks.open(parts, fuse["heads"])


def _source_blocks(kind: str, arrays: dict[str, NDArray[Any]], sizes: dict[str, int], largest: float) -> Blocks:
    """Return the function that fills blocks of one kind of format.KINDS."""
    if kind == "vectors":
        return VectorBlocks(arrays["vectors"])
    if kind == "image_vectors":
        return VectorBlocks(arrays["vectors"], arrays["image_vectors"], arrays["image"])
    if kind == "features":
        return CiderBlocks.open(arrays, sizes, largest)
    if kind == "scene_graphs":
        return SpiceBlocks.open(arrays, sizes)
    return SameImageBlocks(arrays["image"])


def rows_of_lines(
    about: Description, arrays: Mapping[str, NDArray[Any]], index: ArrayLike, captions_per_image: int
) -> NDArray[np.int32]:
    """Return the corpus rows of lines of `SPLIT_caps.txt`, as `relabel export scan` writes them.

    `arrays`: arrays of the lookup. `index`: (B,) int; numbers of lines from 0: the `index` of the loader's items.
    `captions_per_image`: lines per image, its first captions; 0 if all captions have a line. Returns (B,) int32.
    """
    lines = np.asarray(index, np.int64)
    # Lines count from the first caption of a split, and `all` has several.
    if about.split == "all":
        raise ValueError(f"{about.label}: a file of captions has one split; export a lookup of that split")
    indptr = np.asarray(arrays["indptr"])
    count = int(indptr[-1]) if captions_per_image == 0 else (len(indptr) - 1) * captions_per_image
    outside = (lines < 0) | (lines >= count)
    if outside.any():
        raise IndexError(f"no line {lines[outside].reshape(-1)[0]}; {about.split} has {count:,} lines")
    if captions_per_image == 0:
        return (lines + about.rows[0]).astype(np.int32)
    image, position = np.divmod(lines, captions_per_image)
    short = indptr[image] + position >= indptr[image + 1]
    if short.any():
        number = int(image[short].reshape(-1)[0])
        message = f"image {number} of {about.split} has fewer than {captions_per_image} captions"
        raise ValueError(f"{about.label}: {message}; pass the captions_per_image of the export")
    return (indptr[image] + position + about.rows[0]).astype(np.int32)
