"""Batches of `tune sbert`: images, their captions, and the judged pairs among them as positions in the batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.sources.sbert.tune_data import Judged, Numbers, Pairs
from relabel.sources.sbert.tune_groups import grow, links


@dataclass(frozen=True)
class Batch:
    """What one step learns from. All but `captions` are positions in `captions`.

    Attributes
    ----------
    captions : (C,) int64
        Captions of its images, numbers within the `Judged`.
    sts : (P, 2) int64
    sts_score : (P,) float32
        0..1.
    sits : (Q,) int64
        Judged captions.
    references : (Q, REFERENCES) int64
        Captions that stand for the judged image; -1 where that would be the judged caption itself.
    sits_score : (Q,) float32
        0..1.
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
    """The batches of every epoch: a function of seed and epoch alone.

    Parameters
    ----------
    judged : Judged
    images : (I,) int64
        Those that are learned from: no pair that touches another image is in any batch.
    size : int
        Images a batch.
    seed : int
    """

    judged: Judged
    images: Numbers
    size: int
    seed: int

    @cached_property
    def _shared(self) -> Any:
        return links(self.judged)

    def __len__(self) -> int:
        """Batches an epoch."""
        return -(-len(self.images) // self.size)

    def epoch(self, number: int) -> list[Batch]:
        """Group the images anew; a pair that a border of groups cuts waits for another epoch."""
        rng = np.random.default_rng([self.seed, number])
        groups = grow(self._shared, self.images, self.size, rng)
        group_of = np.full(len(self.judged.image_ids), -1)
        for i, group in enumerate(groups):
            group_of[group] = i
        sts, sits = (_by_group(pairs, group_of, len(groups)) for pairs in (self.judged.sts, self.judged.sits))
        made = [make_batch(self.judged, group, sts[i], sits[i]) for i, group in enumerate(groups)]
        return [made[i] for i in rng.permutation(len(made))]


def _by_group(pairs: Pairs, group_of: NDArray[np.int64], count: int) -> list[Pairs]:
    """Pairs both of whose images are in a group, group by group."""
    left, right = group_of[pairs.images].T
    of = np.where(left == right, left, -1)
    order = np.argsort(of, kind="stable")
    cuts = np.searchsorted(of[order], np.arange(count + 1))
    return [pairs.take(order[a:b]) for a, b in pairwise(cuts.tolist())]


def make_batch(judged: Judged, images: Numbers, sts: Pairs, sits: Pairs) -> Batch:
    """Number the captions of a few images and the pairs among them."""
    starts = np.searchsorted(judged.image, images)
    stops = np.searchsorted(judged.image, images, side="right")
    captions = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
    at = np.full(len(judged.texts), -1)
    at[captions] = np.arange(len(captions))
    references = judged.references[sits.right]
    self_too = references == sits.left[:, None]
    return Batch(
        captions,
        np.stack([at[sts.left], at[sts.right]], axis=1),
        sts.score.astype(np.float32),
        at[sits.left],
        np.where(self_too, -1, at[references]),
        sits.score.astype(np.float32),
        sits.images[:, 0] == sits.images[:, 1],
    )
