"""Which batches a plan holds, as padded arrays in shards of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from relabel.core.errors import UsageError
from relabel.core.types import Pooling, Rows
from relabel.corpus import REFERENCES, Corpus
from relabel.export.plan.neighbours import NeighbourTable
from relabel.export.plan.params import ExportPlanParams
from relabel_train.batches.base import Captions, Sampler, mark_usable
from relabel_train.batches.graded import GradedBatches, quantile_levels
from relabel_train.batches.neighbour import NeighbourBatches
from relabel_train.batches.uniform import RandomBatches

_SHARD = 64 << 20  # bytes of blocks per shard, about
_SHARDS = 256  # a reader keeps every shard open; systems allow a process 1024 files
DEPTH = 100
"""Neighbours that graded batches look at where nothing is said."""


@dataclass(frozen=True)
class Shape:
    """How many batches a plan has, and how they are cut into shards.

    Attributes
    ----------
    batch_size : int
    epochs : tuple of int
        Batches of each epoch.
    """

    batch_size: int
    epochs: tuple[int, ...]

    @property
    def batches(self) -> int:
        """Of all epochs."""
        return sum(self.epochs)

    @property
    def per_shard(self) -> int:
        """Batches per shard: its blocks take about 64 MiB, more where that would make more than 256 shards."""
        return max(1, _SHARD // (4 * self.batch_size**2), -(-self.batches // _SHARDS))

    @property
    def shards(self) -> list[range]:
        """Numbers of the batches of each shard."""
        return [range(a, min(a + self.per_shard, self.batches)) for a in range(0, self.batches, self.per_shard)]


def usable_captions(corpus: Corpus, rows: range, failed: Rows, pooling: Pooling) -> Captions:
    """Take the captions whose relevance is a number.

    Parameters
    ----------
    rows : range
        Whole images.
    failed : (F,) int32
        Rows that the source could not encode: left out, and, unless `paired`, with them all captions of the images
        that they are references of.
    """
    image = corpus.image[rows.start : rows.stop]
    places = failed[(failed >= rows.start) & (failed < rows.stop)] - rows.start
    return Captions.of(image, mark_usable(image, places, None if pooling == "paired" else REFERENCES), rows.start)


def make_sampler(
    params: ExportPlanParams, captions: Captions, neighbours: Callable[[int, int], NeighbourTable]
) -> Sampler:
    """Make the sampler that the parameters describe.

    Parameters
    ----------
    captions : Captions
        Those that may be used.
    neighbours : callable
        Opens the neighbours, `most` and `least` a caption (see read_neighbours); asked only by samplers that need them.

    Raises
    ------
    UsageError
        If a parameter makes no sense.
    """
    seed, drop_last, size = params.seed, params.drop_last, params.size
    try:
        if params.sampler == "random":
            single = params.one_caption_an_image
            return RandomBatches(captions, size, seed=seed, drop_last=drop_last, one_caption_an_image=single)
        usual, least = (DEPTH, 1) if params.sampler == "graded" else (params.k + 15, params.k)
        near = neighbours(params.depth or usual, params.depth or least)
        depth = near.width
        if params.sampler == "neighbour":
            return NeighbourBatches(
                captions,
                near,
                size,
                seed=seed,
                drop_last=drop_last,
                k=params.k,
                siblings=params.siblings,
                depth=depth,
                anchors=params.anchors,
            )
        return GradedBatches(
            captions,
            near,
            size,
            levels=params.levels or quantile_levels(captions, near, params.quantiles, depth=depth, seed=seed),
            seed=seed,
            drop_last=drop_last,
            group=params.group,
            siblings=params.siblings,
            depth=depth,
        )
    except ValueError as error:
        raise UsageError(str(error), where="export.plan") from error


def shape_of(params: ExportPlanParams, sampler: Sampler) -> Shape:
    """Count the batches of a plan.

    Raises
    ------
    UsageError
        If there is none: fewer captions than a batch, and a short one is left out.
    """
    count = len(sampler) if params.batches is None else min(len(sampler), params.batches)
    if not count:
        what = f"{len(sampler.captions)} captions fill no batch of {params.size}"
        raise UsageError(what, where="export.plan", todo="Take a smaller batch_size, or keep the last with drop_last.")
    return Shape(params.size, (count,) * params.epochs)


def planned(sampler: Sampler, shape: Shape) -> Iterator[Rows]:
    """Give the batches of all epochs in order: (B,) int32 rows each, a short one filled with -1."""
    for epoch, count in enumerate(shape.epochs):
        for rows in sampler.epoch(epoch)[:count]:
            padded = np.full(shape.batch_size, -1, np.int32)
            padded[: len(rows)] = rows
            yield padded


def images_of(corpus: Corpus, rows: Rows) -> Rows:
    """Give the image number of each row; -1 for -1."""
    return np.where(rows < 0, np.int32(-1), corpus.image[np.maximum(rows, 0)])
