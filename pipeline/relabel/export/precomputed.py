"""Precomputed batches: a seeded list of batches with their exact blocks of relevance.

The batches, ids, `batches.json` and the total size are determined before any pair is scored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.runtime import Progress
from relabel.core.tables import duration
from relabel.core.types import Pooling, Rows
from relabel.corpus import REFERENCES, Corpus, References
from relabel.export.neighbours import ImageNeighbours, NeighbourTable
from relabel.export.params import ExportBatchesParams
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance, block_of_pairs, block_of_sets
from relabel.sources.typical_costs import Cost
from relabel.store.arrays import save_pieces, write_array
from relabel.store.workdir import Step, Steps, Task, Work, part_ranges
from relabel_train.files import read_description
from relabel_train.ids import Ids
from relabel_train.precomputed import NAME, BatchesDescription, shard_name
from relabel_train.samplers import (
    Captions,
    GradedBatchSampler,
    NeighbourBatchSampler,
    RandomBatchSampler,
    Sampler,
    mark_usable,
    quantile_levels,
)

_SHARD = 64 << 20  # target size of the blocks of a shard in bytes
_PAIRS = 1 << 18  # target number of pairs of a shard, if the source scores pair by pair
_SHARDS = 256  # maximum number: a reader keeps all shards open, and a process may open 1024 files by default
_SHARES = (0.1, 0.5, 0.9)  # shares of all neighbours that reach the thresholds of graded batches
MAX_BYTES = 100 << 30
"""Maximum size of an export. A larger one is probably a mistake in the number of epochs and would fill the disk."""
DEPTH = 100
"""Maximum number of nearest captions that graded batches and batches of images consider per item."""
_SPARE = 15  # additional nearest captions, because some belong to the anchor's image


def batches_per_shard(batch_size: int, batches: int, pairwise: bool, shard_bytes: int = _SHARD) -> int:
    """Return the number of batches per shard, for `shard_bytes` or `_PAIRS` pairs per shard and at most 256 shards."""
    target = _PAIRS // batch_size**2 if pairwise else shard_bytes // (4 * batch_size**2)
    return max(1, target, -(-batches // _SHARDS))


@dataclass(frozen=True, eq=False)
class BatchesWork:
    """Work on precomputed batches, with one task per shard of blocks.

    `label`, `split`: label that computes the blocks, and split of the captions.
    `neighbours_label`: label of the neighbours that the sampler uses.
    `rows`: rows of the split, of complete images.
    `failed`: (F,) int32; rows that the source could not encode.
    `neighbours`: opens the neighbours if the sampler needs them; takes `maximum` and `minimum` (see `read_neighbours`).
    `open_relevance`: opens the label; called once per worker, when first needed.
    `most_bytes`: maximum total size of the blocks. `shard_bytes`: target size of a shard.
    """

    corpus: Corpus
    label: str
    split: str
    neighbours_label: str | None
    source: Source[Any]
    rows: range
    failed: Rows
    pooling: Pooling
    params: ExportBatchesParams
    neighbours: Callable[[int, int], NeighbourTable]
    fingerprint: str
    open_relevance: Callable[[], Relevance]
    progress: Progress
    most_bytes: int = MAX_BYTES
    shard_bytes: int = _SHARD

    @cached_property
    def relevance(self) -> Relevance:
        """The opened label."""
        return self.open_relevance()

    @property
    def of_images(self) -> bool:
        """True if a batch consists of images, each represented by its first caption."""
        return self.params.items == "images"

    @cached_property
    def captions(self) -> Captions:
        """Captions that may be in a batch, because their relevance is not NaN (see `mark_usable`)."""
        image, start = self.corpus.image[self.rows.start : self.rows.stop], self.rows.start
        # The encoding may cover other splits; ignore their failed rows.
        positions = self.failed[(self.failed >= start) & (self.failed < self.rows.stop)] - start
        usable = mark_usable(image, positions, None if self.pooling == "first" else REFERENCES)
        if self.of_images:
            usable[1:] &= image[1:] != image[:-1]
        return Captions.of(image, usable, start)

    @cached_property
    def sampler(self) -> Sampler:
        """Sampler that draws the batches."""
        params, captions, size = self.params, self.captions, self.params.size
        options: dict[str, Any] = {"seed": params.seed, "drop_last": params.drop_last}
        try:
            if params.sampler == "random":
                return RandomBatchSampler(captions, size, **options, one_caption_an_image=params.one_caption_an_image)
            graded = params.sampler == "graded"
            depth = DEPTH if graded or self.of_images else (params.nearest or params.k) + _SPARE
            table = self.neighbours(depth, 1 if graded else params.k)
            # Opened lazily, when the first batch is drawn.
            near = (
                ImageNeighbours(self.corpus, table, lambda: self.relevance, self.pooling) if self.of_images else table
            )
            options["depth"] = table.width
            if not graded:
                return NeighbourBatchSampler(captions, near, size, **options, k=params.k, nearest=params.nearest)
            levels = quantile_levels(captions, near, _SHARES, depth=table.width, seed=params.seed)
            return GradedBatchSampler(captions, near, size, **options, levels=levels)
        except ValueError as error:
            raise UsageError(str(error), where="export.batches") from error

    @cached_property
    def about(self) -> BatchesDescription:
        """Content of `batches.json`; raises if the blocks would be larger than `most_bytes`."""
        sampler, params, size = self.sampler, self.params, self.params.size
        images, spec = self.corpus.images_of(self.rows), self.source.spec
        # A sampler draws the same number of batches in every epoch.
        count = min(len(sampler), params.batches_per_epoch or len(sampler))
        if not count:
            message = f"{len(sampler.captions)} {params.items} are too few for a batch of {size}"
            hint = "Use a smaller batch_size, or keep the incomplete last batch with drop_last: false."
            raise UsageError(message, where="export.batches", hint=hint)
        total = count * params.epochs
        if block_bytes(total, size) > self.most_bytes:
            message = f"{total:,} batches of {size} take {block_bytes(total, size) / 1e9:,.3f} GB"
            hint = "Use fewer --epochs or --batches-per-epoch, or a lookup, because it is smaller."
            raise UsageError(message, where="export.batches", hint=hint)
        each = batches_per_shard(size, total, self.source.is_pairwise(), self.shard_bytes)
        return BatchesDescription(
            label=self.label,
            source=spec.name,
            source_kind=spec.kind,
            split=self.split,
            captions=(self.rows.start, self.rows.stop),
            images=(images.start, images.stop),
            left_out=len(images if self.of_images else self.rows) - len(self.captions),
            items=params.items,
            batch_size=size,
            batches=total,
            epochs=(count,) * params.epochs,
            batches_per_shard=each,
            shards=-(-total // each),
            sampler=sampler.parameters,
            neighbours=self.neighbours_label,
            bounds=spec.bounds,
            pooling=self.pooling,
            corpus=self.corpus.digest,
            fingerprint=self.fingerprint,
        )

    @cached_property
    def batches(self) -> Rows:
        """Rows of all batches, (n, B) int32; incomplete batches are padded with -1."""
        batches, number = np.full((self.about.batches, self.about.batch_size), -1, np.int32), 0
        for epoch, count in enumerate(self.about.epochs):
            for rows in self.sampler.epoch(epoch)[:count]:
                batches[number, : len(rows)] = rows
                number += 1
        return batches

    def describe(self, cost: Cost | None = None) -> str:
        """Describe the number and size of the batches, the pairs to score, and the typical time on 2 cores."""
        count, size, first = self.about.batches, self.about.batch_size, self.batches[0]
        references, _ = self._reference_sets(rows := first[first >= 0])
        # For images, all of their captions are scored.
        rows = references.rows if self.of_images else rows
        scored = count * size * (len(rows) if self.of_images else size)
        if self.source.is_pairwise():
            pairs = references.take(np.repeat(np.arange(len(references)), len(rows)))
            scored = self.relevance.pairs_to_score(pairs, np.tile(rows, len(references)), scored)
        time = "" if cost is None else f", about {duration(scored / 1000 * cost.seconds)}"
        space = f"{block_bytes(count, size) / 1e9:,.3f} GB"
        return f"{count:,} batches of {size}, {space}, {scored:,} pairs to score{time}"

    def steps(self, work: Work) -> Steps:
        """Write the files without scores, then yield the step of the blocks."""
        # Only the first process draws the batches, so workers need not open the neighbours.
        if not work.done(NAME):
            for name, array in self._index_arrays().items():
                write_array(work, name, array)
            work.file(NAME, lambda path: path.write_text(self.about.to_json(), encoding="utf-8"))
        about = read_description(BatchesDescription, work.folder / NAME, "", verify=False)
        rows = np.load(work.folder / "rows.npy")
        tasks = [
            Task(f"{shard_name(n, about.shards)}.npy", partial(self._write, rows[part.start : part.stop]), len(part))
            for n, part in enumerate(part_ranges(range(about.batches), about.batches_per_shard))
        ]
        yield Step(f"blocks ({self.label})", "batches", tasks, last=True)
        facts = json.loads(about.to_json())
        work.metadata |= {name: value for name, value in facts.items() if name not in ("kind", "format", "fingerprint")}

    def _index_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of rows, images and ids by file name (see `relabel_train.precomputed`)."""
        corpus, rows, batches = self.corpus, self.rows, self.batches
        captions = Ids.of(corpus.caption_ids[rows.start : rows.stop]).arrays("caption_ids")
        # Images are numbered in row order, so the images of a split are consecutive.
        images = Ids.of(corpus.image_ids[slice(*self.about.images)]).arrays("image_ids")
        image_of_row = np.where(batches < 0, np.int32(-1), corpus.image[np.maximum(batches, 0)])
        return {"rows": batches, "images": image_of_row} | captions | images

    def _write(self, batches: Rows, path: Path) -> None:
        """Write one shard of blocks."""
        size = batches.shape[1]
        save_pieces(path, "<f4", (len(batches), size, size), self._blocks(batches))

    def _blocks(self, batches: Rows) -> Iterator[NDArray[np.float32]]:
        """Yield the blocks of exact scores of the given batches, (1, B, B) each; padding is zero."""
        size = batches.shape[1]
        for padded in batches:
            rows = padded[padded >= 0]
            references, inverse = self._reference_sets(rows)
            if self.of_images:
                scores = block_of_sets(self.relevance, references, references, self.pooling)[:, inverse]
            else:
                scores = block_of_pairs(self.relevance, references, rows, self.pooling)
            block = np.zeros((1, size, size), np.float32)
            # Captions of the same image have equal rows of scores.
            block[0, : len(rows), : len(rows)] = scores[inverse]
            yield block
            self.progress.advance(1)

    def _reference_sets(self, rows: Rows) -> tuple[References, NDArray[np.intp]]:
        """Return the distinct reference sets of captions, and the index of each caption's set."""
        if self.pooling == "first":
            return References.single(rows), np.arange(len(rows))
        images, inverse = np.unique(self.corpus.image[rows], return_inverse=True)
        return self.corpus.references(images), inverse


def block_bytes(batches: int, size: int) -> int:
    """Return the total size of the blocks in bytes."""
    return 4 * batches * size**2
