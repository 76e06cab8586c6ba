"""Semantic Recall: recall of more than a query's own items (SAM Eq. 4, and the form of its code).

Both forms make sets of relevant items; the share of a set among the K best is then `ir_recall` (D16: paper and code
differ, so say which one a figure is).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import Positives, QueryPositives
from relabel_train.metrics.scores import DIRECTIONS, Floats, Scores, blocks

Ints = NDArray[np.int64]


def extended_by_items(labels: Scores, own: Positives, m: int) -> Positives:
    """The paper's sets: a query's own items and the m most relevant others, ties by row (Biten et al., Eq. 4).

    Parameters
    ----------
    labels : Scores
        r(V_i, T_j): (M, N).
    own : Positives
    m : int
        1 or more; a smaller gallery adds all it has.
    """
    sides = []
    for direction, side in zip(DIRECTIONS, (own.i2t, own.t2i), strict=True):
        lists: list[Ints] = []
        for some in blocks(labels, direction, len(side)):
            part = side.take(some)
            values = labels.lists(direction, part.queries).copy()
            values[part.owner(), part.items] = -np.inf
            for q, row in enumerate(values):
                mine = part.items[part.indptr[q] : part.indptr[q + 1]]
                more = _largest(row, min(m, len(row) - len(mine)))
                lists.append(np.concatenate([mine, more]))
        sides.append(_sets(side.queries, lists))
    return Positives(*sides)


def extended_by_images(labels: Scores, own: Positives, m: int, depth: int) -> Positives:
    """The code's sets: the captions of the m images most like a query's image, without GT.

    An image is like another by the sum, over the other's captions, of its label with each, where it is among that
    caption's `depth` most relevant images (the code takes the largest K of its recalls). All captions of an image share
    its images. Captions are as many as an image has, not always five; ties go by row.

    Parameters
    ----------
    labels : Scores
        (M, N).
    own : Positives
    m, depth : int
        1 or more.
    """
    images = labels.shape[0]
    alike: dict[int, Ints] = {}
    captions: dict[int, Ints] = {}
    side = own.i2t
    for q, image in enumerate(side.queries.tolist()):
        mine = captions[image] = side.items[side.indptr[q] : side.indptr[q + 1]]
        values = labels.lists("t2i", mine)
        total, seen = np.zeros(images), np.zeros(images, np.bool_)
        for row in values:
            best = _largest(row, min(depth, images))
            total[best] += row[best]
            seen[best] = True
        seen[image] = False
        there = np.flatnonzero(seen)
        alike[image] = there[np.argsort(-total[there], kind="stable")][:m]
    none = np.zeros(0, np.int64)
    i2t = [np.concatenate([none, *(captions.get(i, none) for i in alike[q].tolist())]) for q in side.queries.tolist()]
    t2i = [alike[i] for i in own.t2i.items.tolist()]
    return Positives(_sets(side.queries, i2t), _sets(own.t2i.queries, t2i))


def _largest(row: Floats, k: int) -> Ints:
    """Find the k largest by (-value, place)."""
    if k < 1:
        return np.zeros(0, np.int64)
    bound = np.partition(row, len(row) - k)[len(row) - k]
    there = np.flatnonzero(row >= bound)
    return there[np.argsort(-row[there], kind="stable")][:k]


def _sets(queries: Ints, lists: list[Ints]) -> QueryPositives:
    """Queries with an empty set are left out."""
    kept = [i for i, items in enumerate(lists) if len(items)]
    counts = np.array([len(lists[i]) for i in kept], np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    items = np.concatenate([np.zeros(0, np.int64), *(lists[i] for i in kept)])
    return QueryPositives(queries[kept], indptr, items, counts)
