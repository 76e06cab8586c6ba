"""Batches of `tune sbert`: images with all their captions, the judged pairs among them, and pairs of sentences.

Batches, and folds to hold out, are groups of images that share many judged pairs. A batch encodes every caption of its
images once and learns from every judged pair among them, so images that are judged together should be in one batch. A
group grows one image at a time, always by the image with the largest share of its pairs inside the group.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.sources.sbert.tune_data import JudgedSet, Numbers, Pairs, SentencePairs


@dataclass(frozen=True)
class Batch:
    """Texts and judged pairs of one training step. All arrays but `captions` hold positions in `captions`.

    `captions`: (C,) int64; captions of the batch's images, then other sentences: numbers within the `JudgedSet`.
    `sts`: (P, 2) int64; judged pairs of captions.
    `sts_score`: (P,) float32; human scores, 0..1.
    `sits`: (Q,) int64; captions that are judged with an image.
    `references`: (Q, REFERENCES) int64; captions that represent the judged image; -1 for the judged caption itself.
    `sits_score`: (Q,) float32; human scores, 0..1.
    `own`: (Q,) bool; whether the image is the caption's own.
    `sis`: (R, 2, REFERENCES) int64; captions that represent either image of a judged pair of images.
    `sis_score`: (R,) float32; human scores, 0..1.
    `sentences`: tuple of ((P, 2) int64, (P,) float32); pairs and human scores, 0..1, of each set of sentence pairs.
    """

    captions: Numbers
    sts: NDArray[np.int64]
    sts_score: NDArray[np.float32]
    sits: Numbers
    references: NDArray[np.int64]
    sits_score: NDArray[np.float32]
    own: NDArray[np.bool_]
    sis: NDArray[np.int64]
    sis_score: NDArray[np.float32]
    sentences: tuple[tuple[NDArray[np.int64], NDArray[np.float32]], ...] = ()


@dataclass(frozen=True)
class Batches:
    """Batches of every epoch, as a function of seed and epoch.

    `images`: (I,) int64; images to learn from. No batch holds a pair with another image. `size`: images per batch.
    `share`: share of each set of sentence pairs that an epoch draws and divides among its batches.
    """

    judged: JudgedSet
    images: Numbers
    size: int
    seed: int
    share: float = 0.0

    @cached_property
    def _shared(self) -> Any:
        """Number of pairs that two images share."""
        return shared_pair_counts(self.judged)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return -(-len(self.images) // self.size)

    def epoch(self, number: int) -> list[Batch]:
        """Return the batches of an epoch, with newly grouped images. Pairs across two groups are left out."""
        rng = np.random.default_rng([self.seed, number])
        groups = cluster_images(self._shared, self.images, self.size, rng)
        group_of = np.full(len(self.judged.image_ids), -1)
        for i, group in enumerate(groups):
            group_of[group] = i
        judged, count = self.judged, len(groups)
        sts, sits, sis = (_by_group(pairs, group_of, count) for pairs in (judged.sts, judged.sits, judged.sis))
        order = rng.permutation(count)
        draws = [rng.permutation(len(s.score))[: round(self.share * len(s.score))] for s in judged.sentences]
        shares = [
            [s.take(part) for part in np.array_split(draw, count)]
            for s, draw in zip(judged.sentences, draws, strict=True)
        ]
        return [make_batch(judged, groups[i], sts[i], sits[i], sis[i], [s[i] for s in shares]) for i in order]


def _by_group(pairs: Pairs, group_of: NDArray[np.int64], count: int) -> list[Pairs]:
    """Return the pairs whose two images are in the same group, group by group."""
    left, right = group_of[pairs.images].T
    group = np.where(left == right, left, -1)
    order = np.argsort(group, kind="stable")
    # Pairs that a border cuts have group -1 and come first; the cuts skip them.
    cuts = np.searchsorted(group[order], np.arange(count + 1))
    return [pairs.take(order[a:b]) for a, b in pairwise(cuts.tolist())]


def make_batch(
    judged: JudgedSet, images: Numbers, sts: Pairs, sits: Pairs, sis: Pairs, sentences: Sequence[SentencePairs]
) -> Batch:
    """Make the batch of some images, the pairs among them, and some pairs of sentences of each set."""
    starts = np.searchsorted(judged.image, images)
    stops = np.searchsorted(judged.image, images, side="right")
    captions = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
    texts = np.unique(np.concatenate([np.empty(0, np.int64), *(s.texts.ravel() for s in sentences)]))
    captions = np.concatenate([captions, texts])
    position = np.full(len(judged.texts), -1)
    # From numbers within the judged set to positions in the batch.
    position[captions] = np.arange(len(captions))
    references = judged.references[sits.right]
    # A caption is no reference of its own pair: its cosine would be 1.
    is_itself = references == sits.left[:, None]
    return Batch(
        captions,
        np.stack([position[sts.left], position[sts.right]], axis=1),
        sts.score.astype(np.float32),
        position[sits.left],
        np.where(is_itself, -1, position[references]),
        sits.score.astype(np.float32),
        sits.images[:, 0] == sits.images[:, 1],
        position[judged.references[np.stack([sis.left, sis.right], axis=1)]],
        sis.score.astype(np.float32),
        tuple((position[s.texts], s.score.astype(np.float32)) for s in sentences),
    )


_PASSES = 20  # passes over all images while moves help
_SLACK = 0.02  # share of its size by which moves may change a fold


def shared_pair_counts(judged: JudgedSet) -> Any:
    """Count the pairs that any two images share.

    `judged`: M images. Returns (M, M) symmetric scipy.sparse.csr_array of float64, with an empty diagonal.
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

    `shared`: (M, M) csr_array; number of pairs that two images share (see `shared_pair_counts`). `images`: (I,) int64;
    images to group. `size`: images per group; the last group may have fewer. `rng`: draws the first image of each
    group, and breaks ties. Returns list of (B,) int64: every image is in exactly one group.
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

    `judged`: M images. `count`: number of folds. Returns (M,) int32: fold of each image; folds differ in size by a few
    per cent.
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
