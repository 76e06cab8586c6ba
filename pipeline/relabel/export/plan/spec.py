"""Specification of a batch plan, known before any pair is scored: its batches, its ids, `plan.json` and its size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.types import Pooling, Rows
from relabel.corpus import REFERENCES, Corpus
from relabel.export.neighbours import NeighbourTable
from relabel.export.params import ExportPlanParams
from relabel.sources.base import Source
from relabel.store.arrays import npy_bytes
from relabel_train.ids import Ids
from relabel_train.plan import PlanDescription
from relabel_train.samplers import (
    Captions,
    GradedBatches,
    NeighbourBatches,
    RandomBatches,
    Sampler,
    mark_usable,
    quantile_levels,
)

_SHARD = 64 << 20  # target size of a shard in bytes of blocks
_SHARDS = 256  # a reader keeps every shard open, and systems allow a process 1024 files
DEPTH = 100
"""Default number of neighbours per caption among which graded batches choose."""


@dataclass(frozen=True)
class Shape:
    """Number of batches of a plan and their division into shards.

    `epochs`: batches of each epoch.
    """

    batch_size: int
    epochs: tuple[int, ...]

    @property
    def batches(self) -> int:
        """Batches of all epochs."""
        return sum(self.epochs)

    @property
    def per_shard(self) -> int:
        """Batches per shard: as many as have 64 MiB of blocks, or more to stay below 256 shards."""
        return max(1, _SHARD // (4 * self.batch_size**2), -(-self.batches // _SHARDS))

    @property
    def shards(self) -> list[range]:
        """Numbers of the batches of each shard."""
        return [range(a, min(a + self.per_shard, self.batches)) for a in range(0, self.batches, self.per_shard)]


def usable_captions(corpus: Corpus, rows: range, failed: Rows, pooling: Pooling) -> Captions:
    """Return the captions whose relevance is a number.

    `rows`: rows of complete images. `failed`: (F,) int32; rows that the source could not encode. They are left out,
    and, unless pooling is `paired`, so are all captions of the images whose references they are.
    """
    image = corpus.image[rows.start : rows.stop]
    # Failures of other splits, which the encoding may also cover, do not count.
    positions = failed[(failed >= rows.start) & (failed < rows.stop)] - rows.start
    return Captions.of(image, mark_usable(image, positions, None if pooling == "paired" else REFERENCES), rows.start)


def make_sampler(
    params: ExportPlanParams, captions: Captions, neighbours: Callable[[int, int], NeighbourTable]
) -> Sampler:
    """Return the sampler that the parameters describe.

    `captions`: captions that may be in a batch. `neighbours`: takes `most` and `least` (see `read_neighbours`) and
    opens the neighbours; called only by samplers that need them.
    """
    seed, drop_last, size = params.seed, params.drop_last, params.size
    try:
        if params.sampler == "random":
            single = params.one_caption_an_image
            return RandomBatches(captions, size, seed=seed, drop_last=drop_last, one_caption_an_image=single)
        # An explicit depth is required; the default one may be cut to the width of the table.
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
    """Return the shape of a plan."""
    count = len(sampler) if params.batches is None else min(len(sampler), params.batches)
    if not count:
        message = f"{len(sampler.captions)} captions fill no batch of {params.size}"
        todo = "Use a smaller batch_size, or keep the last batch with drop_last: false."
        raise UsageError(message, where="export.plan", todo=todo)
    # A sampler draws the same number of batches in every epoch.
    return Shape(params.size, (count,) * params.epochs)


def planned(sampler: Sampler, shape: Shape) -> Iterator[Rows]:
    """Yield the batches of all epochs in order, (B,) int32 rows each; a short batch is padded with -1."""
    for epoch, count in enumerate(shape.epochs):
        for rows in sampler.epoch(epoch)[:count]:
            padded = np.full(shape.batch_size, -1, np.int32)
            padded[: len(rows)] = rows
            yield padded


def images_of(corpus: Corpus, rows: Rows) -> Rows:
    """Return the image number of each row; -1 for -1."""
    return np.where(rows < 0, np.int32(-1), corpus.image[np.maximum(rows, 0)])


@dataclass(frozen=True, eq=False)
class PlanSpec:
    """Specification of one batch plan.

    `label`, `split`: the label whose relevance is planned, and the split whose captions are used.
    `neighbours_label`: the label whose neighbours decide which captions share a batch.
    `rows`: rows of the split.
    `failed`: (F,) int32; rows that the source could not encode.
    `neighbours`: see `make_sampler`.
    """

    corpus: Corpus
    label: str
    split: str
    neighbours_label: str | None
    source: Source[Any]
    rows: range
    failed: Rows
    pooling: Pooling
    params: ExportPlanParams
    neighbours: Callable[[int, int], NeighbourTable]
    fingerprint: str

    @cached_property
    def captions(self) -> Captions:
        """Captions that may be in a batch."""
        return usable_captions(self.corpus, self.rows, self.failed, self.pooling)

    @cached_property
    def sampler(self) -> Sampler:
        """Sampler that draws the batches."""
        return make_sampler(self.params, self.captions, self.neighbours)

    @cached_property
    def shape(self) -> Shape:
        """Number of batches and their division into shards."""
        return shape_of(self.params, self.sampler)

    @cached_property
    def batches(self) -> Rows:
        """Rows of all batches, (n, B) int32; -1 where a batch is short."""
        batches = np.empty((self.shape.batches, self.shape.batch_size), np.int32)
        for number, rows in enumerate(planned(self.sampler, self.shape)):
            batches[number] = rows
        return batches

    @cached_property
    def plan_json(self) -> str:
        """Text of `plan.json`."""
        images, shape = self.corpus.images_of(self.rows), self.shape
        return PlanDescription(
            label=self.label,
            source=self.source.spec.name,
            source_kind=self.source.spec.kind,
            split=self.split,
            captions=(self.rows.start, self.rows.stop),
            images=(images.start, images.stop),
            left_out=len(self.rows) - len(self.captions),
            batch_size=shape.batch_size,
            batches=shape.batches,
            epochs=shape.epochs,
            batches_per_shard=shape.per_shard,
            shards=len(shape.shards),
            sampler=self.sampler.parameters,
            neighbours=self.neighbours_label,
            bounds=self.source.spec.bounds,
            pooling=self.pooling,
            corpus=self.corpus.digest,
            fingerprint=self.fingerprint,
        ).to_json()

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Content of `plan.json`."""
        body: dict[str, Any] = json.loads(self.plan_json)
        return body

    @cached_property
    def id_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of caption ids and image ids; see relabel_train.ids."""
        corpus, rows = self.corpus, self.rows
        # Images are numbered in row order, so those of a split are consecutive.
        images = slice(*self.metadata["images"])
        captions = Ids.of(corpus.caption_ids[rows.start : rows.stop]).arrays("caption_ids")
        return captions | Ids.of(corpus.image_ids[images]).arrays("image_ids")

    def index_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are written before any block, by file name without `.npy`."""
        return {"rows": self.batches, "images": images_of(self.corpus, self.batches), **self.id_arrays}

    @property
    def block_bytes(self) -> int:
        """Bytes of the files of all blocks."""
        size = self.shape.batch_size
        return sum(npy_bytes("<f4", (len(shard), size, size)) for shard in self.shape.shards)

    @property
    def bytes(self) -> int:
        """Bytes of all files except the manifest."""
        arrays = sum(npy_bytes(array.dtype.str, array.shape) for array in self.index_arrays().values())
        return self.block_bytes + arrays + len(self.plan_json.encode())
