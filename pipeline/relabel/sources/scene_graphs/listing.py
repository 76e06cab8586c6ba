"""Distinct tuples of candidates, and who holds them: what a search reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relabel.sources.scene_graphs.structures import I4, I8, Graphs


class Listing(NamedTuple):
    """D distinct tuples, by (kind, first, second, third concept).

    Attributes
    ----------
    number : (T,) int32
        Which one each tuple of the graphs is.
    concepts : (D, 3) int32
        See Graphs.
    object_of : (C,) int32
        The tuple that is a concept alone, -1 where there is none.
    attributes, relations : (C + 1,) int64
        Those that begin with concept c are ``attributes[c]:attributes[c + 1]``, and so on.
    """

    number: I4
    concepts: I4
    object_of: I4
    attributes: I8
    relations: I8


class Holders(NamedTuple):
    """Inverted index of N candidates.

    Attributes
    ----------
    rows : (N,) int32
        Corpus rows, ascending.
    size : (N,) int32
        Tuples of each.
    start : (D + 1,) int64
    position : int32
        The candidates that hold tuple d are ``position[start[d]:start[d + 1]]``.
    """

    rows: I4
    size: I4
    start: I8
    position: I4


def listing_of(graphs: Graphs, concepts: int) -> Listing:
    """Number the distinct tuples of some graphs over so many concepts."""
    first, second, third = (graphs.concepts[:, i].astype(np.int64) for i in range(3))
    kind = (second >= 0).astype(np.int64) + (third >= 0)
    rest, code = np.unique((second + 1) * (concepts + 1) + third + 1, return_inverse=True)
    keys, at, number = np.unique(
        (kind * concepts + first) * max(1, len(rest)) + code.reshape(-1), return_index=True, return_inverse=True
    )
    distinct = np.ascontiguousarray(graphs.concepts[at])
    edges = np.searchsorted(keys // max(1, len(rest)), np.arange(3 * concepts + 1)).astype(np.int64)
    held = edges[1 : concepts + 1] > edges[:concepts]
    object_of = np.where(held, edges[:concepts], -1).astype(np.int32)
    attributes, relations = edges[concepts : 2 * concepts + 1].copy(), edges[2 * concepts :].copy()
    return Listing(number.reshape(-1).astype(np.int32), distinct, object_of, attributes, relations)


def holders_of(graphs: Graphs, listing: Listing, places: I4, rows: I4) -> Holders:
    """Invert the candidates at some places in the graphs, ascending, with their corpus rows."""
    lo = graphs.start[places]
    size = graphs.start[places.astype(np.int64) + 1] - lo
    entry = np.repeat(lo - (np.cumsum(size) - size), size)
    entry += np.arange(len(entry))
    number = listing.number[entry]
    start = np.zeros(len(listing.concepts) + 1, np.int64)
    np.cumsum(np.bincount(number, minlength=len(listing.concepts)), out=start[1:])
    owner = np.repeat(np.arange(len(places), dtype=np.int32), size)
    return Holders(rows, size.astype(np.int32), start, owner[np.argsort(number, kind="stable")])
