"""The arrays of n-gram sources (cider): weighted sparse rows, and each image's captions against each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.errors import UsageError
from relabel.export.arrays import write_array, write_pieces
from relabel.export.columns import Columns
from relabel.sources.base import Relevance
from relabel.sources.ngrams.relevance import CiderRelevance
from relabel.store.work import Work

_CHUNK = 50_000  # captions whose entries are sorted at once
_PAIRS = 1 << 20  # pairs of siblings scored at once


def write_features(relevance: Relevance, largest: float, work: Work) -> dict[str, int]:
    """Write the arrays of the kind `features` (relabel_train.lookup.features); return its sizes.

    Beside the opened encoding this holds 16 bytes an entry: 300 MB for the 616,767 captions of COCO.

    Parameters
    ----------
    relevance : CiderRelevance
    largest : float
        Relevance of a caption to itself, at best.
    work : Work

    Raises
    ------
    UsageError
        If the source has features that are not n-grams.
    """
    if not isinstance(relevance, CiderRelevance):
        raise UsageError(
            f"{type(relevance).__name__} has no lookup yet", todo="Use a batch plan: `relabel export plan`."
        )
    features, weighting, rows = relevance.features, relevance.weighting, relevance.rows
    image = relevance.corpus.image[rows.start : rows.stop]
    columns = Columns.of(features, weighting, image)
    captions, numbers, places = _entries(relevance, columns)
    indptr = np.searchsorted(captions, np.arange(len(rows) + 1)).astype(np.int64)
    del captions
    write_array(work, "features.indptr", indptr)
    write_array(work, "features.columns", numbers)
    for name in ("reference", "candidate"):
        pieces = _weights(relevance, indptr, places, largest, name == "reference")
        write_pieces(work, f"features.{name}", "<f8", (len(places),), pieces)
    write_array(work, "features.length", features.bigrams)
    write_array(work, "features.gauss", weighting.gauss)
    sizes = np.bincount(image - image[0]).astype(np.int64)
    write_array(work, "siblings.start", np.cumsum(sizes**2) - sizes**2)
    write_pieces(work, "siblings.scores", "<f8", (int((sizes**2).sum()),), _siblings(relevance, sizes))
    return {"columns": columns.count, "frequent": columns.frequent}


def _entries(
    relevance: CiderRelevance, columns: Columns
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Caption, column and place of all entries."""
    captions, numbers, places = [], [], []
    for a in range(0, len(relevance.rows), _CHUNK):
        some = range(a, min(a + _CHUNK, len(relevance.rows)))
        caption, number, place = columns.entries(relevance.features, some, relevance.weighting.clip)
        captions.append(caption.astype(np.int32))
        numbers.append(number)
        places.append(place)
    return np.concatenate(captions), np.concatenate(numbers), np.concatenate(places)


def _weights(
    relevance: CiderRelevance, indptr: NDArray[np.int64], places: NDArray[np.int64], largest: float, reference: bool
) -> Iterator[NDArray[np.float64]]:
    """Weights of all entries: tf idf / norm, the reference's times `largest` / n.

    Clipped, the candidate's count is spread over the levels, so that each weighs idf / norm.
    """
    features, weighting = relevance.features, relevance.weighting
    orders = len(weighting.starts) - 1
    for a in range(0, len(relevance.rows), _CHUNK):
        b = min(a + _CHUNK, len(relevance.rows))
        place = places[indptr[a] : indptr[b]]
        caption = np.repeat(np.arange(a, b), np.diff(indptr[a : b + 1]))
        grams = features.ids[place]
        order = np.searchsorted(weighting.starts, grams, side="right") - 1
        weight = weighting.idf[grams] * features.inverse[caption, order]
        if reference or not weighting.clip:
            weight *= features.counts[place]
        yield weight * (largest / orders) if reference else weight


def _siblings(relevance: CiderRelevance, sizes: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """Scores of each image's captions against each other, candidate by candidate."""
    first = relevance.rows.start + np.cumsum(sizes) - sizes
    cuts = np.searchsorted(np.cumsum(sizes**2), np.arange(0, int((sizes**2).sum()), _PAIRS), side="left")
    for a, b in zip(np.unique(cuts), [*np.unique(cuts)[1:], len(sizes)], strict=True):
        n = sizes[a:b]
        pair = np.arange((n**2).sum()) - np.repeat(np.cumsum(n**2) - n**2, n**2)
        size, start = np.repeat(n, n**2), np.repeat(first[a:b], n**2)
        candidate, reference = (start + pair // size).astype(np.int32), (start + pair % size).astype(np.int32)
        yield relevance.pairs(References.single(reference), candidate, "paired")
