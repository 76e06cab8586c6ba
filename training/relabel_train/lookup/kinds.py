"""Blocks of each kind of lookup, opened from its description and arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from relabel_train.lookup.blocks import Blocks, SameImageBlocks
from relabel_train.lookup.cider import CiderBlocks
from relabel_train.lookup.format import Description
from relabel_train.lookup.fuse import FuseBlocks
from relabel_train.lookup.spice import SpiceBlocks
from relabel_train.lookup.vectors import VectorBlocks


def open_blocks(about: Description, arrays: dict[str, NDArray[Any]]) -> Blocks:
    """Return the function that fills blocks, of a single source or of several that are fused.

    Parameters
    ----------
    about : Description
    arrays : dict of str to ndarray
        All arrays of the lookup by name.

    Raises
    ------
    ValueError, IndexError, RecursionError
        If the arrays make no function.
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
    return FuseBlocks.open(arrays, parts, fuse["heads"])


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
