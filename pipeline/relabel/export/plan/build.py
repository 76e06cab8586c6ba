"""Construction of a batch plan: rows and ids, the distinct pairs if the source scores pair by pair, and the blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.progress import Advance
from relabel.core.types import Rows
from relabel.export.plan.blocks import Pairs, block_of
from relabel.export.plan.spec import PlanSpec, Shape
from relabel.sources.gate_counts import collect_gate_counts
from relabel.sources.relevance import Relevance
from relabel.store.arrays import write_array, write_pieces
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work
from relabel_train.batches.grading_report import grading
from relabel_train.batches.plan import NAME, open_plan, shard_name

_GRADED_BATCHES = 256  # batches of which the grading is counted


class PlanTasks(Tasks):
    """Work on a batch plan: one task per shard of blocks, preceded by one task per part of the distinct pairs.

    Parameters
    ----------
    spec : PlanSpec
        Its batches are drawn by the main process alone; all workers read them from the work folder.
    open_relevance : callable
        Opens the label; called once per worker, when first needed.
    """

    def __init__(self, spec: PlanSpec, open_relevance: Callable[[], Relevance]) -> None:
        self.spec, self._open = spec, open_relevance
        self._read_rows: Rows | None = None
        self._opened_pairs: Pairs | None = None

    def start(self, work: Work) -> None:
        """Write the files that need no scores: rows, images, ids and `plan.json`."""
        for name, array in self.spec.index_arrays().items():
            write_array(work, name, array)
        work.file(NAME, lambda path: path.write_text(self.spec.plan_json, encoding="utf-8"))

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Yield the pairs, if they are needed and blocks are missing, and then the shards of blocks."""
        shape = self._shape(work)
        blocks = [Task(_block_file(shape, n), len(shard)) for n, shard in enumerate(shape.shards)]
        if self._pairwise and not all(work.done(task.file) for task in blocks):
            yield TaskGroup(f"pairs ({self.spec.label})", "pairs", self._pairs(work).tasks)
        yield TaskGroup(f"blocks ({self.spec.label})", "batches", blocks)

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Score one part of the pairs, or write one shard of blocks."""
        if task.file.startswith("pairs-"):
            self._pairs(work).score(work, task, self.relevance, advance)
            return
        shape = self._shape(work)
        batches = next(shard for n, shard in enumerate(shape.shards) if _block_file(shape, n) == task.file)
        if self._pairwise:
            blocks = self._pairs(work).blocks(work.folder, batches, advance)
        else:
            blocks = self._score(self._rows(work)[batches.start : batches.stop], advance)
        size = shape.batch_size
        write_pieces(work, task.file.removesuffix(".npy"), "<f4", (len(batches), size, size), blocks)

    def finish(self, work: Work) -> None:
        """Record the facts of the plan; exclude the files of the pairs."""
        collect_gate_counts(work)
        work.excluded |= {name for name in work.entries() if name.startswith("pairs-")}
        work.facts |= {k: v for k, v in self.spec.metadata.items() if k not in ("kind", "format", "fingerprint")}
        levels = self.spec.metadata["sampler"].get("levels") or self.spec.params.levels
        if levels:
            plan = open_plan(work.folder, verify=False)  # its manifest does not exist yet
            numbers = np.linspace(0, len(plan) - 1, min(len(plan), _GRADED_BATCHES)).astype(int).tolist()
            report = grading(((b.relevance, b.same_image) for b in map(plan.__getitem__, numbers)), levels)
            work.facts["grading"] = report.to_json()

    def _score(self, batches: Rows, advance: Advance) -> Iterator[NDArray[np.float32]]:
        """Yield the blocks of some batches, (1, B, B) each; a short batch is padded with zeros."""
        size = batches.shape[1]
        for padded in batches:
            rows = padded[padded >= 0]
            block = np.zeros((1, size, size), np.float32)
            block[0, : len(rows), : len(rows)] = block_of(self.relevance, rows, self.spec.pooling)
            yield block
            advance(1)

    @property
    def _pairwise(self) -> bool:
        return self.spec.source.is_pairwise()

    @cached_property
    def relevance(self) -> Relevance:
        """The opened label."""
        return self._open()

    def _shape(self, work: Work) -> Shape:
        # From the file rather than the specification, whose shape would open the neighbours in every worker.
        metadata: dict[str, Any] = json.loads((work.folder / NAME).read_text(encoding="utf-8"))
        return Shape(metadata["batch_size"], tuple(metadata["epochs"]))

    def _rows(self, work: Work) -> Rows:
        """Return the rows of all batches as written, (n, B) int32."""
        if self._read_rows is None:
            self._read_rows = np.load(work.folder / "rows.npy")
        return self._read_rows

    def _pairs(self, work: Work) -> Pairs:
        if self._opened_pairs is None:
            self._opened_pairs = Pairs(self.spec.corpus, self._rows(work), self.spec.pooling)
        return self._opened_pairs


def _block_file(shape: Shape, shard: int) -> str:
    return f"{shard_name(shard, len(shape.shards))}.npy"
