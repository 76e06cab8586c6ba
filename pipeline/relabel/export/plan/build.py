"""Construction of a batch plan: rows and ids, and the exact blocks."""

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
from relabel.corpus import Corpus, References
from relabel.export.plan.spec import PlanSpec, Shape
from relabel.sources.relevance import Relevance, block_of_pairs
from relabel.sources.typical_costs import Cost
from relabel.store.arrays import save_pieces, write_array
from relabel.store.workdir import Step, Steps, Task, Work
from relabel_train.plan import NAME, shard_name


@dataclass(frozen=True, eq=False)
class PlanWork:
    """Work on a batch plan: one task per shard of blocks.

    `spec`: its batches are drawn by the process that comes first; all others read them from the work folder.
    `open_relevance`: opens the label; called once per worker, when first needed.
    """

    spec: PlanSpec
    open_relevance: Callable[[], Relevance]
    progress: Progress

    def steps(self, work: Work) -> Steps:
        """Write the files that need no scores; yield the blocks."""
        # The process that comes first draws the batches; workers would open the neighbours for it.
        if not work.done(NAME):
            for name, array in self.spec.index_arrays().items():
                write_array(work, name, array)
            work.file(NAME, lambda path: path.write_text(self.spec.plan_json, encoding="utf-8"))
        about: dict[str, Any] = json.loads((work.folder / NAME).read_text(encoding="utf-8"))
        shape = Shape(about["batch_size"], tuple(about["epochs"]), about["batches_per_shard"])
        rows, count = np.load(work.folder / "rows.npy"), len(shape.shards)
        tasks = [
            Task(f"{shard_name(n, count)}.npy", partial(self._write, rows[shard.start : shard.stop]), len(shard))
            for n, shard in enumerate(shape.shards)
        ]
        yield Step(f"blocks ({self.spec.label})", "batches", tasks, last=True)
        work.facts |= {k: v for k, v in self.spec.metadata.items() if k not in ("kind", "format", "fingerprint")}

    def _write(self, batches: Rows, path: Path) -> None:
        """Write one shard of blocks."""
        size = batches.shape[1]
        save_pieces(path, "<f4", (len(batches), size, size), self._blocks(batches))

    def _blocks(self, batches: Rows) -> Iterator[NDArray[np.float32]]:
        """Yield the blocks of some batches, (1, B, B) each; a short batch is padded with zeros."""
        size = batches.shape[1]
        for padded in batches:
            rows = padded[padded >= 0]
            block = np.zeros((1, size, size), np.float32)
            block[0, : len(rows), : len(rows)] = block_of(self.relevance, rows, self.spec.pooling)
            yield block
            self.progress.advance(1)

    @cached_property
    def relevance(self) -> Relevance:
        """The opened label."""
        return self.open_relevance()


def block_of(relevance: Relevance, rows: Rows, pooling: Pooling) -> NDArray[np.float32]:
    """Score a batch: (B, B) float32, the scores of `Relevance.pairs` of the image of each row and each caption."""
    references, inverse = reference_sets(relevance.corpus, rows, pooling)
    # Captions of one image have one row of scores.
    return block_of_pairs(relevance, references, rows, pooling).astype(np.float32)[inverse]


def reference_sets(corpus: Corpus, rows: Rows, pooling: Pooling) -> tuple[References, NDArray[np.intp]]:
    """Return the distinct reference sets of captions, and which one is that of each caption."""
    if pooling == "paired":
        return References.single(rows), np.arange(len(rows))
    images, inverse = np.unique(corpus.image[rows], return_inverse=True)
    return corpus.references(images), inverse


def check_size_limit(spec: PlanSpec) -> None:
    """Check that the blocks are no larger than `max_bytes`, before anything is drawn or scored."""
    size, limit = spec.block_bytes, spec.params.most_bytes
    if size > limit:
        shape = spec.shape
        message = (
            f"{shape.batches:,} batches of {shape.batch_size} take {_gigabytes(size)}, more than {_gigabytes(limit)}"
        )
        todo = "Plan fewer epochs or --batches, or allow it with --max-bytes; a lookup answers any batch in less space."
        raise UsageError(message, where="export.plan", todo=todo)


def describe(spec: PlanSpec, relevance: Relevance, cost: Cost | None = None) -> str:
    """Return the size of a plan and its typical time on 2 CPU cores; raise if the label refuses so many pairs."""
    shape, first = spec.shape, spec.batches[0]
    scored, rows = shape.batches * shape.batch_size**2, first[first >= 0]
    if spec.source.is_pairwise():
        references, _ = reference_sets(spec.corpus, rows, spec.pooling)
        pairs = references.take(np.repeat(np.arange(len(references)), len(rows)))
        scored = relevance.pairs_to_score(pairs, np.tile(rows, len(references)), scored)
    time = "" if cost is None else f", about {duration(scored / 1000 * cost.seconds)}"
    size = f"{shape.batches:,} batches of {shape.batch_size}, {_gigabytes(spec.block_bytes)}"
    return f"{size}, {scored:,} pairs to score{time}"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.3f} GB"
