"""What is known of a plan before any pair is scored: its batches, what plan.json says, and its size to the byte."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Pooling, Rows
from relabel.corpus import Corpus
from relabel.export.plan.batches import Shape, images_of, make_sampler, planned, shape_of, usable_captions
from relabel.export.plan.neighbours import NeighbourTable
from relabel.export.plan.params import ExportPlanParams
from relabel.sources.base import Source
from relabel_train.batches.base import Captions, Sampler
from relabel_train.batches.plan import COVERAGE, EXACT, FORMAT, ORIENTATION, SAME_IMAGE
from relabel_train.ids import Ids


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
        See plan_batches.make_sampler.
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
