"""Write a batch plan: rows and ids, then (for sources that score pair by pair) the distinct pairs, then the blocks."""

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
from relabel.export.plan.spec import Outline, Shape
from relabel.sources.gate_counts import collect_gate_counts
from relabel.sources.relevance import Relevance
from relabel.store.arrays import write_array, write_pieces
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work
from relabel_train.batches.grading_report import grading
from relabel_train.batches.plan import NAME, open_plan, shard_name

_LOOKED_AT = 256  # batches whose grading is counted


class PlanTasks(Tasks):
    """A batch plan's work: a shard of blocks a task; a part of the distinct pairs before them.

    Parameters
    ----------
    outline : Outline
        Its batches are drawn by the asking process alone, and read from the work folder by all.
    open_relevance : callable
        Opens the label for answers, once a worker, when first needed.
    """

    def __init__(self, outline: Outline, open_relevance: Callable[[], Relevance]) -> None:
        self.outline, self._open = outline, open_relevance

    def start(self, work: Work) -> None:
        """Write what is known before any score; see Tasks."""
        for name, array in self.outline.small().items():
            write_array(work, name, array)
        work.file(NAME, lambda p: p.write_text(self.outline.text, encoding="utf-8"))

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """See Tasks."""
        shape = self._shape(work)
        blocks = [Task(_blocks(shape, n), len(shard)) for n, shard in enumerate(shape.shards)]
        if self._pairwise and not all(work.done(task.file) for task in blocks):
            yield TaskGroup(f"pairs ({self.outline.label})", "pairs", self._pairs(work).tasks)
        yield TaskGroup(f"blocks ({self.outline.label})", "batches", blocks)

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """See Tasks."""
        if task.file.startswith("pairs-"):
            self._pairs(work).score(work, task, self.relevance, advance)
            return
        shape = self._shape(work)
        batches = next(s for n, s in enumerate(shape.shards) if _blocks(shape, n) == task.file)
        made = self._pairs(work).blocks(work.folder, batches, advance) if self._pairwise else None
        size = shape.batch_size
        pieces = made or self._scored(self._rows(work)[batches.start : batches.stop], advance)
        write_pieces(work, task.file.removesuffix(".npy"), "<f4", (len(batches), size, size), pieces)

    def finish(self, work: Work) -> None:
        """See Tasks."""
        collect_gate_counts(work)
        work.excluded |= {name for name in work.entries() if name.startswith("pairs-")}
        work.facts |= {k: v for k, v in self.outline.about.items() if k not in ("kind", "format", "fingerprint")}
        levels = self.outline.about["sampler"].get("levels") or self.outline.params.levels
        if levels:
            plan = open_plan(work.folder, verify=False)  # its manifest is not written yet
            numbers = np.linspace(0, len(plan) - 1, min(len(plan), _LOOKED_AT)).astype(int).tolist()
            found = grading(((b.relevance, b.same_image) for b in map(plan.__getitem__, numbers)), levels)
            work.facts["grading"] = found.to_json()

    def _scored(self, batches: Rows, advance: Advance) -> Iterator[NDArray[np.float32]]:
        size = batches.shape[1]
        for padded in batches:
            rows = padded[padded >= 0]
            block = np.zeros((1, size, size), np.float32)
            block[0, : len(rows), : len(rows)] = block_of(self.relevance, rows, self.outline.pooling)
            yield block
            advance(1)

    @property
    def _pairwise(self) -> bool:
        return self.outline.source.is_pairwise()

    @cached_property
    def relevance(self) -> Relevance:
        """The label, opened."""
        return self._open()

    def _shape(self, work: Work) -> Shape:
        about: dict[str, Any] = json.loads((work.folder / NAME).read_text(encoding="utf-8"))
        return Shape(about["batch_size"], tuple(about["epochs"]))

    def _rows(self, work: Work) -> Rows:
        """(n, B) rows of all batches, as written."""
        if self._read is None:
            self._read = np.load(work.folder / "rows.npy")
        return self._read

    def _pairs(self, work: Work) -> Pairs:
        if self._scorer is None:
            self._scorer = Pairs(self.outline.corpus, self._rows(work), self.outline.pooling)
        return self._scorer

    _read: Rows | None = None
    _scorer: Pairs | None = None


def _blocks(shape: Shape, shard: int) -> str:
    return f"{shard_name(shard, len(shape.shards))}.npy"
