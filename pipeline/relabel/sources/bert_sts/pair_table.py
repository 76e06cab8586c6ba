"""The table of refined pairs that a search shares: who is scored with whom, each pair of classes in one task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.progress import Advance
from relabel.core.types import Scores
from relabel.sources.bert_sts.cost import log_cost
from relabel.sources.bert_sts.gate import Classes
from relabel.sources.gate_counts import record_gate_counts
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

I8 = NDArray[np.int64]
_OWNERS = 256  # classes a task, behind a gate
_PAIRS = 1 << 17  # pairs a task, about, without one
_SAMPLE = 256  # classes whose pairs are counted for the estimate
SCHEMA = pa.schema([pa.field("one", pa.int32()), pa.field("two", pa.int32()), pa.field("score", pa.float64())])
"""Two classes by number (one asks for two, where the order counts) and the refined score."""


@dataclass(frozen=True, eq=False)
class Refining:
    """Pairs of a class that asks and a class that is asked for, refined where they pass.

    Attributes
    ----------
    classes : Classes
    asking, asked : (n,) and (m,) int64
        Class numbers, ascending.
    """

    classes: Classes
    asking: I8
    asked: I8

    @cached_property
    def owners(self) -> I8:
        """All classes that take part, ascending: where the order does not count, a pair is the task's of either."""
        return np.union1d(self.asking, self.asked) if self.unordered else self.asking

    @property
    def unordered(self) -> bool:
        """Whether both orders of a pair are one."""
        return self.classes.relevance.orders == "both"

    @cached_property
    def tasks(self) -> dict[str, I8]:
        """The owners of each task, by file."""
        gated = self.classes.relevance.coarse is not None
        size = _OWNERS if gated else max(1, _PAIRS // max(1, len(self.owners)))
        parts = [self.owners[a : a + size] for a in range(0, len(self.owners), size)]
        return {f"refined-{i:05d}-of-{len(parts):05d}.parquet": part for i, part in enumerate(parts)}

    def task_group(self, work: Work) -> TaskGroup:
        """List the tasks; say what is left to do, or refuse it.

        Raises
        ------
        UsageError
            See `log_cost`.
        """
        left = [owners for file, owners in self.tasks.items() if not work.done(file)]
        if left:
            every = np.concatenate(left)
            some = np.sort(np.random.default_rng(0).permutation(every)[:_SAMPLE])
            one, two = self._own(some)
            keys = np.unique(self._keys(one, two))
            log_cost(self.classes.relevance, round(len(keys) * len(every) / len(some)), keys, "neighbours")
        return TaskGroup("refined pairs", "texts", [Task(file, len(owners)) for file, owners in self.tasks.items()])

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Refine the pairs of a task."""
        relevance, owners = self.classes.relevance, self.tasks[task.file]
        told = 0

        def table() -> pa.Table:
            one, two = self._own(owners)
            keys, which = np.unique(self._keys(one, two), return_inverse=True)
            done = 0

            def tell(more: int) -> None:
                nonlocal done, told
                done += more
                now = min(task.size, done * task.size // max(1, len(keys)))
                advance(now - told)
                told = now

            with record_gate_counts(relevance, work, task.file):
                relevance.tally["asked"] += len(owners) * len(self.owners) // (2 if self.unordered else 1)
                relevance.tally["passed"] += len(one)
                scores = relevance.refine(keys, tell)[which.reshape(-1)]
            return pa.table([one.astype(np.int32), two.astype(np.int32), scores], schema=SCHEMA)

        work.table(task.file, table, plain=True)
        advance(task.size - told)

    def scores(self, work: Work, some: I8) -> tuple[I8, I8, Scores]:
        """Read the refined pairs of some asking classes, ascending: who asks, who is asked for, and the score."""
        found: list[tuple[I8, I8, Scores]] = []
        for file in self.tasks:
            table = pq.read_table(work.folder / file)
            one, two = (table[name].to_numpy().astype(np.int64) for name in ("one", "two"))
            score = table["score"].to_numpy()
            for asks, other in ((one, two), (two, one)) if self.unordered else ((one, two),):
                mine = _among(asks, some)
                found.append((asks[mine], other[mine], score[mine]))
        asks, other, score = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((other, asks))
        return asks[order], other[order], score[order]

    def _own(self, owners: I8) -> tuple[I8, I8]:
        """List the pairs that some owners own and that pass, a text with itself left out."""
        if not self.unordered:
            one, two = self.classes.passing(owners, self.asked)
            mine = np.ones(len(one), bool)
        else:
            one, two = self.classes.passing(owners, self.owners)
            mine = np.where((one + two) % 2 == 0, one < two, one > two)  # as many for a class of any number
            wanted = _among(one, self.asking) & _among(two, self.asked)
            mine &= wanted | (_among(two, self.asking) & _among(one, self.asked))
        mine &= self.classes.text[one] != self.classes.text[two]
        return one[mine], two[mine]

    def _keys(self, one: I8, two: I8) -> I8:
        text = self.classes.text
        return self.classes.relevance.keys(text[one], text[two])


def _among(values: I8, some: I8) -> NDArray[np.bool_]:
    """Say of each value whether it is among some, which ascend."""
    if not len(some):
        return np.zeros(len(values), bool)
    return np.asarray(some[np.minimum(np.searchsorted(some, values), len(some) - 1)] == values)
