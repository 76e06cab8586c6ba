"""Specification of a batch plan, known before any pair is scored: its batches, its ids, `plan.json` and its size."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.types import Pooling, Rows
from relabel.corpus import REFERENCES, Corpus
from relabel.export.neighbours import NeighbourTable
from relabel.export.plan.params import ExportPlanParams
from relabel.sources.base import Source
from relabel_train.batches.base import Captions, Sampler, mark_usable
from relabel_train.batches.graded import GradedBatches, quantile_levels
from relabel_train.batches.neighbour import NeighbourBatches
from relabel_train.batches.plan import COVERAGE, EXACT, FORMAT, ORIENTATION, SAME_IMAGE
from relabel_train.batches.uniform import RandomBatches
from relabel_train.ids import Ids

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


@dataclass(frozen=True, eq=False)
class Outline:
    """A plan to be written.

    Attributes
    ----------
    corpus : Corpus
    label, split, neighbours_label : str
        The label planned, the split whose captions are used, and the label whose neighbours decide who meets, if any.
    source : Source
    rows : range
        The split's rows.
    failed : (F,) int32
        Rows that the source could not encode.
    pooling : Pooling
    params : ExportPlanParams
    neighbours : callable
        See `make_sampler`.
    fingerprint : str
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
        """What may be in a batch."""
        return usable_captions(self.corpus, self.rows, self.failed, self.pooling)

    @cached_property
    def sampler(self) -> Sampler:
        """What chooses the batches."""
        return make_sampler(self.params, self.captions, self.neighbours)

    @cached_property
    def shape(self) -> Shape:
        """How many batches there are."""
        return shape_of(self.params, self.sampler)

    @cached_property
    def batches(self) -> Rows:
        """(n, B) int32: the rows of all batches, -1 where one is short."""
        found = np.empty((self.shape.batches, self.shape.batch_size), np.int32)
        for number, rows in enumerate(planned(self.sampler, self.shape)):
            found[number] = rows
        return found

    @cached_property
    def about(self) -> dict[str, Any]:
        """What plan.json says."""
        corpus, shape = self.corpus, self.shape
        return {
            "kind": "plan",
            "format": FORMAT,
            "label": self.label,
            "source": self.source.spec.name,
            "source_kind": self.source.spec.kind,
            "split": self.split,
            "captions": [self.rows.start, self.rows.stop],
            "images": [int(corpus.image[self.rows.start]), int(corpus.image[self.rows.stop - 1]) + 1],
            "left_out": len(self.rows) - len(self.captions),
            "batch_size": shape.batch_size,
            "batches": shape.batches,
            "epochs": list(shape.epochs),
            "batches_per_shard": shape.per_shard,
            "shards": len(shape.shards),
            "sampler": self.sampler.parameters,
            "neighbours": self.neighbours_label,
            "bounds": list(self.source.spec.bounds),
            "pooling": self.pooling,
            "orientation": ORIENTATION,
            "same_image": SAME_IMAGE,
            "coverage": COVERAGE,
            "exact": EXACT,
            "corpus": corpus.digest,
            "fingerprint": self.fingerprint,
        }

    @cached_property
    def text(self) -> str:
        """plan.json."""
        return json.dumps(self.about, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"

    @cached_property
    def ids(self) -> dict[str, NDArray[Any]]:
        """Arrays of caption ids and image ids; see relabel_train.ids."""
        corpus, rows = self.corpus, self.rows
        images = slice(*self.about["images"])
        captions = Ids.of(corpus.caption_ids[rows.start : rows.stop]).arrays("caption_ids")
        return captions | Ids.of(corpus.image_ids[images]).arrays("image_ids")

    def small(self) -> dict[str, NDArray[Any]]:
        """Arrays that are there before any block: name without `.npy` to array."""
        return {"rows": self.batches, "images": images_of(self.corpus, self.batches), **self.ids}

    @property
    def block_bytes(self) -> int:
        """Bytes of all blocks."""
        size = self.shape.batch_size
        return sum(npy_bytes("<f4", (len(s), size, size)) for s in self.shape.shards)

    @property
    def bytes(self) -> int:
        """Bytes of all files but the manifest."""
        arrays = sum(npy_bytes(a.dtype.str, a.shape) for a in self.small().values())
        return self.block_bytes + arrays + len(self.text.encode())


def npy_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a `.npy` file."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    return len(head.getvalue()) + prod(shape) * np.dtype(dtype).itemsize
