"""The columns of sparse rows: which (n-gram, level) pairs two images can share, most frequent first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.structures import Features, Weighting

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
