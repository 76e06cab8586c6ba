"""Specification of a batch plan, known before any pair is scored: its batches, its ids, `plan.json` and its size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
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
_PAIRS = 1 << 18  # pairs of a shard of a source that scores pair by pair, a quarter of an hour of METEOR
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
    per_shard: int

    @classmethod
    def of(cls, batch_size: int, epochs: tuple[int, ...], pairwise: bool) -> Shape:
        """Return the shape with shards of 64 MiB or of as many pairs as `_PAIRS`, or larger ones to stay below 256."""
        cells = batch_size**2
        most = _PAIRS // cells if pairwise else _SHARD // (4 * cells)
        return cls(batch_size, epochs, max(1, most, -(-sum(epochs) // _SHARDS)))

    @property
    def batches(self) -> int:
        """Batches of all epochs."""
        return sum(self.epochs)

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


@dataclass(frozen=True, eq=False)
class PlanSpec:
    """Specification of one batch plan.

    `label`, `split`: the label whose relevance is planned, and the split whose captions are used.
    `neighbours_label`: the label whose neighbours decide which captions share a batch.
    `rows`: rows of the split.
    `failed`: (F,) int32; rows that the source could not encode.
    `neighbours`: takes `most` and `least` (see `read_neighbours`) and opens the neighbours, if the sampler needs them.
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
        params, captions, size = self.params, self.captions, self.params.size
        given: dict[str, Any] = {"seed": params.seed, "drop_last": params.drop_last}
        try:
            if params.sampler == "random":
                return RandomBatches(captions, size, **given, one_caption_an_image=params.one_caption_an_image)
            # An explicit depth is required; the default one may be cut to the width of the table.
            usual, least = (DEPTH, 1) if params.sampler == "graded" else (params.k + 15, params.k)
            near = self.neighbours(params.depth or usual, params.depth or least)
            given |= {"siblings": params.siblings, "depth": near.width}
            if params.sampler == "neighbour":
                return NeighbourBatches(captions, near, size, **given, k=params.k, anchors=params.anchors)
            drawn = partial(quantile_levels, captions, near, params.quantiles, depth=near.width, seed=params.seed)
            return GradedBatches(captions, near, size, **given, levels=params.levels or drawn(), group=params.group)
        except ValueError as error:
            raise UsageError(str(error), where="export.plan") from error

    @cached_property
    def shape(self) -> Shape:
        """Number of batches and their division into shards."""
        sampler, params = self.sampler, self.params
        count = len(sampler) if params.batches is None else min(len(sampler), params.batches)
        if not count:
            message = f"{len(sampler.captions)} captions fill no batch of {params.size}"
            todo = "Use a smaller batch_size, or keep the last batch with drop_last: false."
            raise UsageError(message, where="export.plan", todo=todo)
        # A sampler draws the same number of batches in every epoch.
        return Shape.of(params.size, (count,) * params.epochs, self.source.is_pairwise())

    @cached_property
    def batches(self) -> Rows:
        """Rows of all batches, (n, B) int32; -1 where a batch is short."""
        batches, number = np.full((self.shape.batches, self.shape.batch_size), -1, np.int32), 0
        for epoch, count in enumerate(self.shape.epochs):
            for rows in self.sampler.epoch(epoch)[:count]:
                batches[number, : len(rows)] = rows
                number += 1
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

    def index_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are written before any block, by file name without `.npy`; see relabel_train.ids."""
        corpus, rows, batches = self.corpus, self.rows, self.batches
        # Images are numbered in row order, so those of a split are consecutive.
        images = slice(*self.metadata["images"])
        captions = Ids.of(corpus.caption_ids[rows.start : rows.stop]).arrays("caption_ids")
        image_of_row = np.where(batches < 0, np.int32(-1), corpus.image[np.maximum(batches, 0)])
        return {
            "rows": batches,
            "images": image_of_row,
            **captions,
            **Ids.of(corpus.image_ids[images]).arrays("image_ids"),
        }

    @property
    def block_bytes(self) -> int:
        """Bytes of the files of all blocks."""
        size = self.shape.batch_size
        return sum(npy_bytes("<f4", (len(shard), size, size)) for shard in self.shape.shards)
