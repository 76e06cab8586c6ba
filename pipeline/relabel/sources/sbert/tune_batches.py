"""Batches of `tune sbert`: images with all their captions, and the judged pairs among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.sources.sbert.tune_data import JudgedSet, Numbers, Pairs
from relabel.sources.sbert.tune_groups import cluster_images, shared_pair_counts


@dataclass(frozen=True)
class Batch:
    """Captions and judged pairs of one training step. All arrays but `captions` hold positions in `captions`.

    Attributes
    ----------
    captions : (C,) int64
        Captions of the batch's images, numbers within the `JudgedSet`.
    sts : (P, 2) int64
        Judged pairs of captions.
    sts_score : (P,) float32
        Human scores, 0..1.
    sits : (Q,) int64
        Captions that are judged with an image.
    references : (Q, REFERENCES) int64
        Captions that represent the judged image; -1 for the judged caption itself.
    sits_score : (Q,) float32
        Human scores, 0..1.
    own : (Q,) bool
        Whether the image is the caption's own.
    """

    captions: Numbers
    sts: NDArray[np.int64]
    sts_score: NDArray[np.float32]
    sits: Numbers
    references: NDArray[np.int64]
    sits_score: NDArray[np.float32]
    own: NDArray[np.bool_]


@dataclass(frozen=True)
class Batches:
    """Batches of every epoch, as a function of seed and epoch.

    Parameters
    ----------
    judged : JudgedSet
    images : (I,) int64
        Images to learn from. No batch holds a pair with another image.
    size : int
        Images per batch.
    seed : int
    """

    judged: JudgedSet
    images: Numbers
    size: int
    seed: int

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
        sts, sits = (_by_group(pairs, group_of, len(groups)) for pairs in (self.judged.sts, self.judged.sits))
        batches = [make_batch(self.judged, group, sts[i], sits[i]) for i, group in enumerate(groups)]
        return [batches[i] for i in rng.permutation(len(batches))]


def _by_group(pairs: Pairs, group_of: NDArray[np.int64], count: int) -> list[Pairs]:
    """Return the pairs whose two images are in the same group, group by group."""
    left, right = group_of[pairs.images].T
    group = np.where(left == right, left, -1)
    order = np.argsort(group, kind="stable")
    # Pairs that a border cuts have group -1 and come first; the cuts skip them.
    cuts = np.searchsorted(group[order], np.arange(count + 1))
    return [pairs.take(order[a:b]) for a, b in pairwise(cuts.tolist())]


def make_batch(judged: JudgedSet, images: Numbers, sts: Pairs, sits: Pairs) -> Batch:
    """Make the batch of some images and the pairs among them."""
    starts = np.searchsorted(judged.image, images)
    stops = np.searchsorted(judged.image, images, side="right")
    captions = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
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
    )
