"""Groups of images that share many judged pairs: training batches, and folds to hold out.

A batch encodes every caption of its images once and learns from every judged pair among them, so images that are judged
together should be in one batch. A group grows one image at a time, always by the image with the largest share of its
pairs inside the group.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.sources.sbert.tune_data import JudgedSet, Numbers

_PASSES = 20  # passes over all images while moves help
_SLACK = 0.02  # share of its size by which moves may change a fold


def shared_pair_counts(judged: JudgedSet) -> Any:
    """Count the pairs that any two images share.

    Parameters
    ----------
    judged : JudgedSet
        M images.

    Returns
    -------
    (M, M) symmetric scipy.sparse.csr_array of float64, with an empty diagonal.
    """
    from scipy.sparse import csr_array

    ends = np.concatenate([judged.sts.images, judged.sits.images])
    ends = ends[ends[:, 0] != ends[:, 1]]
    a, b = np.concatenate([ends, ends[:, ::-1]]).T
    count = len(judged.image_ids)
    shared = csr_array((np.ones(len(a)), (a, b)), shape=(count, count))
    shared.sum_duplicates()
    return shared


def cluster_images(shared: Any, images: Numbers, size: int, rng: np.random.Generator) -> list[Numbers]:
    """Partition images into groups that share many pairs.

    Parameters
    ----------
    shared : (M, M) csr_array
        Number of pairs that two images share (see `shared_pair_counts`).
    images : (I,) int64
        Images to group.
    size : int
        Images per group; the last group may have fewer.
    rng : Generator
        Draws the first image of each group, and breaks ties.

    Returns
    -------
    list of (B,) int64
        Every image is in exactly one group.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from relabel.sources.sbert.tune_groups import cluster_images
    >>> shared = csr_array(np.array([[0, 0, 3, 0], [0, 0, 0, 2], [3, 0, 0, 0], [0, 2, 0, 0]]))
    >>> groups = cluster_images(shared, np.arange(4), 2, np.random.default_rng(0))
    >>> sorted(sorted(group.tolist()) for group in groups)
    [[0, 2], [1, 3]]
    """
    order, draw = rng.permutation(images), rng.random(shared.shape[0])
    free = np.zeros(shared.shape[0], bool)
    free[images] = True
    pairs = np.asarray(shared.sum(axis=1)).ravel()
    starts = iter(order.tolist())
    groups: list[Numbers] = []
    while free.any():
        group: list[int] = []
        pairs_inside: dict[int, float] = {}
        queue: list[tuple[float, float, int]] = []
        while len(group) < size:
            # Entries of the heap may be stale: an image is entered again whenever its share rises.
            image = next((i for _, _, i in _popped(queue) if free[i]), None)
            if image is None:
                # No image outside shares a pair with the group: start from a random one.
                image = next((i for i in starts if free[i]), None)
            if image is None:
                break
            free[image] = False
            group.append(image)
            neighbours = slice(shared.indptr[image], shared.indptr[image + 1])
            for other, count in zip(shared.indices[neighbours].tolist(), shared.data[neighbours].tolist(), strict=True):
                if free[other]:
                    pairs_inside[other] = pairs_inside.get(other, 0.0) + count
                    # The share of an image's pairs that are inside; ties are broken by a fixed draw.
                    heapq.heappush(queue, (-pairs_inside[other] / pairs[other], draw[other], other))
        groups.append(np.array(group, np.int64))
    return groups


def _popped(queue: list[tuple[float, float, int]]) -> Any:
    """Yield the entries of a heap in ascending order; entries may be added meanwhile."""
    while queue:
        yield heapq.heappop(queue)


def cut_folds(judged: JudgedSet, count: int, seed: int) -> NDArray[np.int32]:
    """Partition images into folds that few pairs cross.

    Folds are grown as groups are. Then images move to the fold that holds most of their pairs, while any move helps.

    Parameters
    ----------
    judged : JudgedSet
        M images.
    count : int
        Number of folds.
    seed : int

    Returns
    -------
    (M,) int32
        Fold of each image; folds differ in size by a few per cent.
    """
    shared, rng = shared_pair_counts(judged), np.random.default_rng([seed, count])
    images = len(judged.image_ids)
    fold = np.empty(images, np.int32)
    for k, group in enumerate(cluster_images(shared, np.arange(images), -(-images // count), rng)):
        fold[group] = k
    sizes = np.bincount(fold, minlength=count)
    least, most = int(images / count * (1 - _SLACK)), int(images / count * (1 + _SLACK)) + 1
    for _ in range(_PASSES):
        moved = 0
        for image in rng.permutation(images).tolist():
            neighbours = slice(shared.indptr[image], shared.indptr[image + 1])
            pairs_in = np.bincount(fold[shared.indices[neighbours]], weights=shared.data[neighbours], minlength=count)
            current, best = int(fold[image]), int(pairs_in.argmax())
            # A strict gain: each move reduces the number of crossing pairs, so the passes end.
            if pairs_in[best] > pairs_in[current] and sizes[current] > least and sizes[best] < most:
                fold[image] = best
                sizes[current] -= 1
                sizes[best] += 1
                moved += 1
        if not moved:
            break
    return fold
