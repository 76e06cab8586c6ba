"""Groups of images that share many judged pairs: batches to train on, and folds to hold out.

A batch encodes every caption of its images once and learns from every judged pair among them, so images that are
judged together should meet. Groups are grown one image at a time, always the one most of whose pairs are in already.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.sources.sbert.tune_data import Judged, Numbers

_PASSES = 20
_SLACK = 0.02  # by how much of itself a fold may grow or shrink in moving


def links(judged: Judged) -> Any:
    """How many pairs two images share.

    Returns
    -------
    (M, M) symmetric scipy.sparse.csr_array of float64, nothing on its diagonal.
    """
    from scipy.sparse import csr_array

    ends = np.concatenate([judged.sts.images, judged.sits.images])
    ends = ends[ends[:, 0] != ends[:, 1]]
    a, b = np.concatenate([ends, ends[:, ::-1]]).T
    count = len(judged.image_ids)
    shared = csr_array((np.ones(len(a)), (a, b)), shape=(count, count))
    shared.sum_duplicates()
    return shared


def grow(shared: Any, images: Numbers, size: int, rng: np.random.Generator) -> list[Numbers]:
    """Cut images into groups.

    Parameters
    ----------
    shared : (M, M) csr_array
        See `links`.
    images : (I,) int64
        Those to be grouped.
    size : int
        Images a group; the last one may have fewer.
    rng : Generator
        Draws where groups begin, and settles ties.

    Returns
    -------
    list of (B,) int64
        Every image is in one of them.
    """
    order, draw = rng.permutation(images), rng.random(shared.shape[0])
    free = np.zeros(shared.shape[0], bool)
    free[images] = True
    pairs = np.asarray(shared.sum(axis=1)).ravel()
    starts = iter(order.tolist())
    groups: list[Numbers] = []
    while free.any():
        group: list[int] = []
        inside: dict[int, float] = {}
        queue: list[tuple[float, float, int]] = []
        while len(group) < size:
            image = next((i for _, _, i in _popped(queue) if free[i]), None)
            if image is None:
                image = next((i for i in starts if free[i]), None)
            if image is None:
                break
            free[image] = False
            group.append(image)
            near = slice(shared.indptr[image], shared.indptr[image + 1])
            for other, count in zip(shared.indices[near].tolist(), shared.data[near].tolist(), strict=True):
                if free[other]:
                    inside[other] = inside.get(other, 0.0) + count
                    heapq.heappush(queue, (-inside[other] / pairs[other], draw[other], other))
        groups.append(np.array(group, np.int64))
    return groups


def _popped(queue: list[tuple[float, float, int]]) -> Any:
    while queue:
        yield heapq.heappop(queue)


def cut_folds(judged: Judged, count: int, seed: int) -> NDArray[np.int32]:
    """Cut images into folds that few pairs cross: grown, then moved to where most of their pairs are while any gains.

    Returns
    -------
    (M,) int32
        Fold of each image; folds differ in size by a few per cent.
    """
    shared, rng = links(judged), np.random.default_rng([seed, count])
    images = len(judged.image_ids)
    fold = np.empty(images, np.int32)
    for k, group in enumerate(grow(shared, np.arange(images), -(-images // count), rng)):
        fold[group] = k
    sizes = np.bincount(fold, minlength=count)
    least, most = int(images / count * (1 - _SLACK)), int(images / count * (1 + _SLACK)) + 1
    for _ in range(_PASSES):
        moved = 0
        for image in rng.permutation(images).tolist():
            near = slice(shared.indptr[image], shared.indptr[image + 1])
            held = np.bincount(fold[shared.indices[near]], weights=shared.data[near], minlength=count)
            here, there = int(fold[image]), int(held.argmax())
            if held[there] > held[here] and sizes[here] > least and sizes[there] < most:
                fold[image] = there
                sizes[here] -= 1
                sizes[there] += 1
                moved += 1
        if not moved:
            break
    return fold
