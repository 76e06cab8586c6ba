"""Construction of a batch plan, and the prediction of its files.

A plan holds rows and ids, the distinct pairs if the source scores pair by pair, and the blocks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import PartialError, UsageError
from relabel.core.runtime import Progress
from relabel.core.tables import duration
from relabel.core.types import Rows
from relabel.export.plan.blocks import PAIR_BYTES, Pairs, block_of
from relabel.export.plan.spec import PlanSpec, Shape
from relabel.sources.relevance import Relevance
from relabel.sources.typical_costs import Cost
from relabel.store.arrays import save_pieces, write_array
from relabel.store.workdir import Step, Steps, Task, Work
from relabel_train.plan import NAME, shard_name

_PAIRS = 1 << 15  # pairs of the sample from which the pairs that are scored are estimated


@dataclass(frozen=True, eq=False)
class PlanWork:
    """Work on a batch plan: one task per shard of blocks, preceded by one task per part of the distinct pairs.

    `spec`: its batches are drawn by the process that comes first; all others read them from the work folder.
    `open_relevance`: opens the label; called once per worker, when first needed.
    """

    spec: PlanSpec
    open_relevance: Callable[[], Relevance]
    progress: Progress

    def steps(self, work: Work) -> Steps:
        """Write the files that need no scores; yield the pairs, if they are needed, and the blocks."""
        # The process that comes first draws the batches; workers would open the neighbours for it.
        if not work.done(NAME):
            for name, array in self.spec.index_arrays().items():
                write_array(work, name, array)
            work.file(NAME, lambda path: path.write_text(self.spec.plan_json, encoding="utf-8"))
        metadata: dict[str, Any] = json.loads((work.folder / NAME).read_text(encoding="utf-8"))
        shape, rows = Shape(metadata["batch_size"], tuple(metadata["epochs"])), np.load(work.folder / "rows.npy")
        pairs = Pairs(self.spec.corpus, rows, self.spec.pooling) if self.spec.source.is_pairwise() else None
        tasks = [
            Task(_block_file(shape, n), partial(self._write, work, shape, rows, pairs, shard), len(shard))
            for n, shard in enumerate(shape.shards)
        ]
        blocks = Step(f"blocks ({self.spec.label})", "batches", tasks, last=True)
        if pairs is not None and blocks.missing(work):
            yield pairs.step(f"pairs ({self.spec.label})", self, self.progress)
        yield blocks
        work.excluded |= {name for name in work.names() if name.startswith("pairs-")}
        work.facts |= {k: v for k, v in self.spec.metadata.items() if k not in ("kind", "format", "fingerprint")}

    def _write(self, work: Work, shape: Shape, rows: Rows, pairs: Pairs | None, batches: range, path: Path) -> None:
        """Write one shard of blocks."""
        if pairs is not None:
            blocks = pairs.blocks(work.folder, batches, self.progress.advance)
        else:
            blocks = self._score(rows[batches.start : batches.stop])
        size = shape.batch_size
        save_pieces(path, "<f4", (len(batches), size, size), blocks)

    def _score(self, batches: Rows) -> Iterator[NDArray[np.float32]]:
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


def _block_file(shape: Shape, shard: int) -> str:
    return f"{shard_name(shard, len(shape.shards))}.npy"


@dataclass(frozen=True)
class Estimate:
    """Cost of a batch plan.

    `bytes`, `work_bytes`: bytes of the plan without its manifest, and of the temporary files beside it.
    `pairs`: pairs that are scored: the distinct ones if the source scores pair by pair, otherwise those of all batches.
    `seconds`: typical time on 2 CPU cores; None if the source was not measured.
    """

    batches: int
    batch_size: int
    shards: int
    bytes: int
    work_bytes: int
    pairs: int
    seconds: float | None

    def describe(self) -> str:
        """Return the estimate as one line of text."""
        time = "" if self.seconds is None else f", about {duration(self.seconds)}"
        temporary = f" (and {_size(self.work_bytes)} of temporary files)" if self.work_bytes else ""
        shape = f"{self.batches:,} batches of {self.batch_size} in {self.shards:,} shards"
        return f"{shape}, {_size(self.bytes)}{temporary}, {self.pairs:,} pairs to score{time}"


def check_size_limit(spec: PlanSpec) -> None:
    """Check that the blocks are no larger than `max_bytes`, before anything is drawn or scored."""
    size, limit = spec.block_bytes, spec.params.most_bytes
    if size > limit:
        shape = spec.shape
        message = f"{shape.batches:,} batches of {shape.batch_size} take {_size(size)}, more than {_size(limit)}"
        todo = "Plan fewer epochs or --batches, or allow it with --max-bytes; a lookup answers any batch in less space."
        raise UsageError(message, where="export.plan", todo=todo)


def check_disk_space(estimate: Estimate, folder: Path, written: int) -> None:
    """Check that the disk has room for the plan, of which `written` bytes exist already."""
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free, needed = shutil.disk_usage(existing).free, estimate.bytes + estimate.work_bytes - written
    if needed > free:
        message = f"the plan needs {_size(needed)} more, {_size(free)} are free"
        todo = "Free some space and run the command again; finished files are kept."
        raise PartialError(message, where=str(existing), todo=todo)


def estimate(spec: PlanSpec, relevance: Relevance, cost: Cost | None = None) -> Estimate:
    """Count the pairs and bytes of a plan; raise UsageError if the label refuses so many pairs."""
    shape, batches = spec.shape, spec.batches
    if spec.source.is_pairwise():
        pairs = Pairs(spec.corpus, batches, spec.pooling)
        count, work = pairs.distinct, pairs.distinct * PAIR_BYTES
        scored = relevance.pairs_to_score(*pairs.unpack(pairs.sample(_PAIRS)), count)
    else:
        sizes = (batches >= 0).sum(axis=1, dtype=np.int64)
        count, work = int(sizes @ sizes), 0  # a batch of B captions has B * B pairs
        scored = count
    seconds = None if cost is None else round(scored / 1000 * cost.seconds, 1)
    return Estimate(shape.batches, shape.batch_size, len(shape.shards), spec.bytes, work, count, seconds)


def _size(count: float) -> str:
    for task in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if task == "B" else f"{count:.1f} {task}"
        count /= 1000
    return f"{count:.1f} TB"
