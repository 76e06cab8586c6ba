"""Semantic Recall: sets of positives beyond a query's own items; `ir_recall` computes their recall (SAM Eq. 4).

Paper and released code differ (docs/deviations.md): the paper adds the m most relevant items, the code takes all
captions of the m most similar images. This module has the sets of both, and figures name the one they use.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import Positives, QueryPositives
from relabel_train.metrics.scores import DIRECTIONS, Floats, Scores

Ints = NDArray[np.int64]


def extended_by_items(labels: Scores, own: Positives, m: int) -> Positives:
    """Return the paper's sets: a query's own items and the m most relevant others, ties by row (Biten et al., Eq. 4).

    Parameters
    ----------
    labels : Scores
        r(V_i, T_j).
    own : Positives
    m : int
        1 or more; a smaller gallery adds all it has.

    Examples
    --------
    >>> from relabel_train.metrics import open_scores, own_positives
    >>> labels = open_scores(np.array([[1.0, 1.0, 0.7, 0.2], [0.3, 0.6, 1.0, 1.0]]))
    >>> extended_by_items(labels, own_positives([0, 0, 1, 1], images=2), m=1).i2t.items
    array([0, 1, 2, 2, 3, 1])
    """
    sides = []
    for direction, side in zip(DIRECTIONS, (own.i2t, own.t2i), strict=True):
        sets: list[Ints] = []
        for q, query in enumerate(side.queries.tolist()):
            row, mine = labels.lists(direction, np.array([query]))[0].copy(), side.items[slice(*side.indptr[q : q + 2])]
            # A query's own items are in its set already and must not be drawn again.
            row[mine] = -np.inf
            sets.append(np.concatenate([mine, _largest(row, min(m, len(row) - len(mine)))]))
        sides.append(_without_empty(side.queries, sets))
    return Positives(*sides)


def extended_by_images(labels: Scores, own: Positives, m: int, depth: int) -> Positives:
    """Return the released code's sets: the captions of the m images most similar to a query's image, without GT.

    The similarity of an image to a query's image is the sum of its labels with the captions of the query's image. A
    label counts if the image is among the `depth` most relevant of that caption; the released code uses the maximum K
    of its recalls. All captions of an image share its similar images. The sets hold as many captions as an image has,
    not always five; ties go by row.

    Parameters
    ----------
    labels : Scores
    own : Positives
    m, depth : int
        1 or more.

    Examples
    --------
    >>> from relabel_train.metrics import open_scores, own_positives
    >>> labels = open_scores(np.array([[1.0, 0.6, 0.2], [0.7, 1.0, 0.4], [0.1, 0.3, 1.0]]))
    >>> extended_by_images(labels, own_positives([0, 1, 2], images=3), m=1, depth=3).i2t.items
    array([1, 0, 1])
    """
    images = labels.shape[0]
    similar: dict[int, Ints] = {}
    captions: dict[int, Ints] = {}
    side = own.i2t
    for q, image in enumerate(side.queries.tolist()):
        mine = captions[image] = side.items[side.indptr[q] : side.indptr[q + 1]]
        values = labels.lists("t2i", mine)
        total, seen = np.zeros(images), np.zeros(images, np.bool_)
        # Similarity accumulates over the captions of the image, each with a list of limited depth.
        for row in values:
            best = _largest(row, min(depth, images))
            total[best] += row[best]
            seen[best] = True
        seen[image] = False
        candidates = np.flatnonzero(seen)
        similar[image] = candidates[np.argsort(-total[candidates], kind="stable")][:m]
    none = np.zeros(0, np.int64)
    i2t = [np.concatenate([none, *(captions.get(i, none) for i in similar[q].tolist())]) for q in side.queries.tolist()]
    t2i = [similar[i] for i in own.t2i.items.tolist()]
    return Positives(_without_empty(side.queries, i2t), _without_empty(own.t2i.queries, t2i))


def _largest(row: Floats, k: int) -> Ints:
    """Return the indices of the k largest values, by (-value, index)."""
    if k < 1:
        return np.zeros(0, np.int64)
    # Sort all values equal to or above the k-th largest, to order ties at the end of the list by index.
    bound = np.partition(row, len(row) - k)[len(row) - k]
    candidates = np.flatnonzero(row >= bound)
    return candidates[np.argsort(-row[candidates], kind="stable")][:k]


def _without_empty(queries: Ints, sets: list[Ints]) -> QueryPositives:
    """Return the positives of the queries with a non-empty set."""
    filled = [i for i, items in enumerate(sets) if len(items)]
    counts = np.array([len(sets[i]) for i in filled], np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # The empty array sets the dtype of the result if there are not any sets.
    items = np.concatenate([np.zeros(0, np.int64), *(sets[i] for i in filled)])
    return QueryPositives(queries[filled], indptr, items, counts)
