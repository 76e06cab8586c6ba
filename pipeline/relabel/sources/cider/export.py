"""Lookup arrays of cider: weighted sparse rows, and scores between the captions of each image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Scores
from relabel.corpus import References
from relabel.sources.cider.features import MAX_SCORE, Features, Weighting, orders_of
from relabel.store.arrays import write_array, write_pieces
from relabel.store.workdir import Work

PairScores = Callable[[References, NDArray[np.int64]], Scores]
"""Function that scores P sets of rows against one row each."""
_CHUNK = 50_000  # number of captions per sort of entries
_PAIRS = 1 << 20  # number of sibling pairs to score together
_FREQUENT = 0.06
"""Minimum share of captions for a dense column: it is then faster than pair by pair (measured, 128 x 128)."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Numbered columns of a sparse lookup: (n-gram, level) pairs.

    With clipping, min(tf_c, tf_r) is the number of levels that both captions reach, so a sum over levels replaces the
    minimum. An n-gram that occurs three times in a caption has entries in its columns of levels 1, 2 and 3.

    `levels`: list of (ids, numbers), int32; for each level from 1, the ascending n-grams that have a column, and the
        numbers of the columns.
    `count`: number of columns.
    `frequent`: columns 0 to ``frequent - 1`` are in at least 6% of captions.
    """

    levels: list[tuple[NDArray[np.int32], NDArray[np.int32]]]
    count: int
    frequent: int

    @classmethod
    def of(cls, features: Features, weighting: Weighting, image: NDArray[np.int32]) -> Columns:
        """Number the columns that have a positive idf and occur in captions of at least two images.

        `image`: (N,) int32; ascending image of each caption.
        """
        owner = np.repeat(image, np.diff(features.indptr))
        ids, counts, level = features.ids, features.counts, 1
        column_ids, captions = [], []
        # Plain CIDEr multiplies counts, so it only needs level 1.
        while level == 1 or (weighting.clip and len(ids)):
            grams, frequencies, shared = _count_holders(ids, owner)
            # Scores between captions of one image are stored separately, so columns of one image are not needed.
            wanted = shared & (weighting.idf[grams] > 0)
            column_ids.append(grams[wanted])
            captions.append(frequencies[wanted])
            level += 1
            more = counts >= level
            ids, counts, owner = ids[more], counts[more], owner[more]
        # In descending order of frequency: the reader's dense block is then a prefix.
        frequency = np.concatenate([np.empty(0, np.int64), *captions])
        number = np.empty(len(frequency), np.int32)
        number[np.argsort(-frequency, kind="stable")] = np.arange(len(frequency), dtype=np.int32)
        cuts = np.cumsum([len(grams) for grams in column_ids])[:-1]
        frequent = int(np.count_nonzero(frequency >= _FREQUENT * len(image)))
        return cls(list(zip(column_ids, np.split(number, cuts), strict=True)), len(frequency), frequent)

    def entries(
        self, features: Features, rows: range, clip: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """Return the entries of a range of captions, sorted by (caption, column).

        Returns `caption`, (E,) int64, row of `features`; `column`, (E,) int32; `source`, (E,) int64, position in
        ``features.ids`` of the entry.
        """
        first, stop = features.indptr[rows.start], features.indptr[rows.stop]
        source = np.arange(first, stop)
        caption = np.repeat(np.arange(rows.start, rows.stop), np.diff(features.indptr[rows.start : rows.stop + 1]))
        columns, sources, captions = [], [], []
        for level, (grams, numbers) in enumerate(self.levels, start=1):
            if level > 1:
                more = features.counts[source] >= level
                source, caption = source[more], caption[more]
            at = np.minimum(np.searchsorted(grams, features.ids[source]), max(0, len(grams) - 1))
            present = grams[at] == features.ids[source] if len(grams) else np.zeros(len(source), np.bool_)
            columns.append(numbers[at[present]])
            sources.append(source[present])
            captions.append(caption[present])
        column, owner, origin = np.concatenate(columns), np.concatenate(captions), np.concatenate(sources)
        order = np.argsort(owner * max(1, self.count) + column)
        return owner[order], column[order], origin[order]


def write_features(
    image: NDArray[np.int32], features: Features, weighting: Weighting, score: PairScores, work: Work
) -> dict[str, int]:
    """Write the arrays of the kind `features` (see `relabel_train.lookup.cider`).

    In addition to the opened encoding, this takes 16 bytes per entry: 300 MB for the 616,767 captions of COCO.

    `image`: (N,) int32; ascending image of each row of `features`. `score`: scores pairs of these rows. Returns the
    sizes `columns` and `frequent` for `lookup.json`.
    """
    columns = Columns.of(features, weighting, image)
    captions, numbers, sources = _all_entries(len(image), features, columns, weighting.clip)
    indptr = np.searchsorted(captions, np.arange(len(image) + 1)).astype(np.int64)
    del captions  # 4 bytes per entry
    write_array(work, "features.indptr", indptr)
    write_array(work, "features.columns", numbers)
    for name in ("reference", "candidate"):
        pieces = _weights(features, weighting, indptr, sources, name == "reference")
        write_pieces(work, f"features.{name}", "<f8", (len(sources),), pieces)
    write_array(work, "features.length", features.bigrams)
    write_array(work, "features.gauss", weighting.gauss)
    sizes = np.bincount(image - image[0]).astype(np.int64)
    write_array(work, "siblings.start", np.cumsum(sizes**2) - sizes**2)
    write_pieces(work, "siblings.scores", "<f8", (int((sizes**2).sum()),), _sibling_scores(score, sizes))
    return {"columns": columns.count, "frequent": columns.frequent}


def _all_entries(
    count: int, features: Features, columns: Columns, clip: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Return caption, column and source position of all entries. Sorts in chunks to limit the memory."""
    captions, numbers, sources = [], [], []
    for a in range(0, count, _CHUNK):
        caption, number, source = columns.entries(features, range(a, min(a + _CHUNK, count)), clip)
        captions.append(caption.astype(np.int32))
        numbers.append(number)
        sources.append(source)
    return np.concatenate(captions), np.concatenate(numbers), np.concatenate(sources)


def _weights(
    features: Features, weighting: Weighting, indptr: NDArray[np.int64], sources: NDArray[np.int64], reference: bool
) -> Iterator[NDArray[np.float64]]:
    """Yield the weights of all entries: tf idf / norm, for references times 10 / n.

    With clipping, the count of a candidate is distributed over the levels, so each entry has the weight idf / norm.
    """
    orders = len(weighting.starts) - 1
    for a in range(0, len(indptr) - 1, _CHUNK):
        b = min(a + _CHUNK, len(indptr) - 1)
        source = sources[indptr[a] : indptr[b]]
        caption = np.repeat(np.arange(a, b), np.diff(indptr[a : b + 1]))
        grams = features.ids[source]
        weight = weighting.idf[grams] * features.inverse[caption, orders_of(grams, weighting)]
        if reference or not weighting.clip:
            weight *= features.counts[source]
        yield weight * (MAX_SCORE / orders) if reference else weight


def _sibling_scores(score: PairScores, sizes: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """Yield the scores between the captions of each image, sorted by candidate."""
    first = np.cumsum(sizes) - sizes
    # Group images to about `_PAIRS` pairs.
    cuts = np.searchsorted(np.cumsum(sizes**2), np.arange(0, int((sizes**2).sum()), _PAIRS), side="left")
    for a, b in zip(np.unique(cuts), [*np.unique(cuts)[1:], len(sizes)], strict=True):
        n = sizes[a:b]
        # Pair p of an image with s captions consists of candidate p // s and reference p % s.
        pair = np.arange((n**2).sum()) - np.repeat(np.cumsum(n**2) - n**2, n**2)
        size, start = np.repeat(n, n**2), np.repeat(first[a:b], n**2)
        yield score(References.single((start + pair % size).astype(np.int32)), start + pair // size)


def _count_holders(
    ids: NDArray[np.int32], owner: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the n-grams that occur, their numbers of captions, and whether they occur in more than one image."""
    size = int(ids.max(initial=-1)) + 1
    frequencies = np.bincount(ids, minlength=size)
    last, first = np.empty(size, np.int32), np.empty(size, np.int32)
    last[ids] = owner  # the last of equal indices is assigned
    first[ids[::-1]] = owner[::-1]
    grams = np.flatnonzero(frequencies)
    return grams.astype(np.int32), frequencies[grams], first[grams] != last[grams]
