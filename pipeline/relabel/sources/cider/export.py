"""The arrays of n-gram sources (cider): weighted sparse rows, and each image's captions against each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.sources.cider.features import Features, Weighting
from relabel.sources.cider.relevance import CiderRelevance
from relabel.store.arrays import write_array, write_pieces
from relabel.store.workdir import Work

_CHUNK = 50_000  # captions whose entries are sorted at once
_PAIRS = 1 << 20  # pairs of siblings scored at once
_OFTEN = 0.06
"""A column in this share of captions costs less in a dense product than pair by pair (measured, 128 x 128)."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Numbers of columns.

    Attributes
    ----------
    levels : list of (ids, numbers)
        For each level, from 1: the n-grams that have a column, ascending, and its number; int32.
    count : int
    frequent : int
        The first so many are in at least 6% of captions.
    """

    levels: list[tuple[NDArray[np.int32], NDArray[np.int32]]]
    count: int
    frequent: int

    @classmethod
    def of(cls, features: Features, weighting: Weighting, image: NDArray[np.int32]) -> Columns:
        """Number the columns that captions of two images have, and whose idf is not 0.

        Parameters
        ----------
        features, weighting
        image : (N,) int32
            Image of each caption, ascending.
        """
        owner = np.repeat(image, np.diff(features.indptr))
        ids, counts, level = features.ids, features.counts, 1
        found, captions = [], []
        while level == 1 or (weighting.clip and len(ids)):
            grams, held, shared = _held(ids, owner)
            wanted = shared & (weighting.idf[grams] > 0)
            found.append(grams[wanted])
            captions.append(held[wanted])
            level += 1
            more = counts >= level
            ids, counts, owner = ids[more], counts[more], owner[more]
        frequency = np.concatenate([np.empty(0, np.int64), *captions])
        number = np.empty(len(frequency), np.int32)
        number[np.argsort(-frequency, kind="stable")] = np.arange(len(frequency), dtype=np.int32)
        cuts = np.cumsum([len(grams) for grams in found])[:-1]
        often = int(np.count_nonzero(frequency >= _OFTEN * len(image)))
        return cls(list(zip(found, np.split(number, cuts), strict=True)), len(frequency), often)

    def entries(
        self, features: Features, rows: range, clip: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """List the entries of some captions, by (caption, column).

        Returns
        -------
        caption : (E,) int64
            Row of `features`.
        column : (E,) int32
        place : (E,) int64
            Where in ``features.ids`` it comes from.
        """
        first, stop = features.indptr[rows.start], features.indptr[rows.stop]
        place = np.arange(first, stop)
        caption = np.repeat(np.arange(rows.start, rows.stop), np.diff(features.indptr[rows.start : rows.stop + 1]))
        columns, places, captions = [], [], []
        for level, (grams, numbers) in enumerate(self.levels, start=1):
            if level > 1:
                more = features.counts[place] >= level
                place, caption = place[more], caption[more]
            at = np.minimum(np.searchsorted(grams, features.ids[place]), max(0, len(grams) - 1))
            there = grams[at] == features.ids[place] if len(grams) else np.zeros(len(place), np.bool_)
            columns.append(numbers[at[there]])
            places.append(place[there])
            captions.append(caption[there])
        column, owner, where = np.concatenate(columns), np.concatenate(captions), np.concatenate(places)
        order = np.argsort(owner * max(1, self.count) + column)
        return owner[order], column[order], where[order]


def write_features(relevance: CiderRelevance, largest: float, work: Work) -> dict[str, int]:
    """Write the arrays of the kind `features` (relabel_train.lookup.cider); return its sizes.

    Beside the opened encoding this holds 16 bytes an entry: 300 MB for the 616,767 captions of COCO.

    Parameters
    ----------
    relevance : CiderRelevance
    largest : float
        Relevance of a caption to itself, at best.
    work : Work
    """
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


def _held(
    ids: NDArray[np.int32], owner: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Of each n-gram that occurs: its id, how many captions hold it, and whether captions of two images do."""
    size = int(ids.max(initial=-1)) + 1
    held = np.bincount(ids, minlength=size)
    last, first = np.empty(size, np.int32), np.empty(size, np.int32)
    last[ids] = owner  # of equal indices the last one counts
    first[ids[::-1]] = owner[::-1]
    grams = np.flatnonzero(held)
    return grams.astype(np.int32), held[grams], first[grams] != last[grams]
