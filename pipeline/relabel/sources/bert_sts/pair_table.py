"""Table of refined pairs that all queries of a search share. Each pair belongs to one task."""

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
from relabel.sources.bert_sts.gate import DistinctCaptions
from relabel.sources.gate_counts import record_gate_counts
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

I8 = NDArray[np.int64]
_OWNERS = 256  # owners per task, behind a gate
_PAIRS = 1 << 17  # approximate number of pairs per task, without a gate
_SAMPLE = 256  # owners whose pairs are counted for the estimate
SCHEMA = pa.schema([pa.field("one", pa.int32()), pa.field("two", pa.int32()), pa.field("score", pa.float64())])
"""Two distinct captions (query and candidate, if the order counts) and their refined score."""


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs of a query and a candidate, refined if they pass the gate.

    Attributes
    ----------
    captions : DistinctCaptions
    queries, candidates : (n,) and (m,) int64
        Distinct captions, ascending.
    """

    captions: DistinctCaptions
    queries: I8
    candidates: I8

    @cached_property
    def owners(self) -> I8:
        """Distinct captions that own pairs, ascending: all of them if scoring is symmetric, else the queries."""
        return np.union1d(self.queries, self.candidates) if self.unordered else self.queries

    @property
    def unordered(self) -> bool:
        """True if both orders of a pair are one pair."""
        return self.captions.relevance.orders == "both"

    @cached_property
    def tasks(self) -> dict[str, I8]:
        """Owners of each task, by file name."""
        gated = self.captions.relevance.coarse is not None
        size = _OWNERS if gated else max(1, _PAIRS // max(1, len(self.owners)))
        parts = [self.owners[a : a + size] for a in range(0, len(self.owners), size)]
        return {f"refined-{i:05d}-of-{len(parts):05d}.parquet": part for i, part in enumerate(parts)}

    def task_group(self, work: Work) -> TaskGroup:
        """Return the tasks, and log the estimated cost of those that are not done.

        Raises
        ------
        UsageError
            If there are more pairs than the limit (see `log_cost`).
        """
        missing = [owners for file, owners in self.tasks.items() if not work.done(file)]
        if missing:
            remaining = np.concatenate(missing)
            sample = np.sort(np.random.default_rng(0).permutation(remaining)[:_SAMPLE])
            one, two = self._owned_pairs(sample)
            keys = np.unique(self._keys(one, two))
            log_cost(self.captions.relevance, round(len(keys) * len(remaining) / len(sample)), keys, "neighbours")
        return TaskGroup("refined pairs", "texts", [Task(file, len(owners)) for file, owners in self.tasks.items()])

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Refine the pairs of a task and write its file."""
        relevance, owners = self.captions.relevance, self.tasks[task.file]
        advanced = 0

        def table() -> pa.Table:
            one, two = self._owned_pairs(owners)
            # Distinct captions may share a text: each pair of texts is scored once.
            keys, which = np.unique(self._keys(one, two), return_inverse=True)
            done = 0

            def count(increment: int) -> None:
                nonlocal done, advanced
                done += increment
                target = min(task.size, done * task.size // max(1, len(keys)))
                advance(target - advanced)
                advanced = target

            with record_gate_counts(relevance, work, task.file):
                relevance.counts["asked"] += len(owners) * len(self.owners) // (2 if self.unordered else 1)
                relevance.counts["passed"] += len(one)
                scores = relevance.refine(keys, count)[which.reshape(-1)]
            return pa.table([one.astype(np.int32), two.astype(np.int32), scores], schema=SCHEMA)

        work.table(task.file, table, plain=True)
        advance(task.size - advanced)

    def scores(self, work: Work, queries: I8) -> tuple[I8, I8, Scores]:
        """Read the refined pairs of some queries.

        Parameters
        ----------
        work : Work
        queries : (q,) int64
            Distinct captions, ascending.

        Returns
        -------
        query, other : (P,) int64
            Pairs ordered by both.
        score : (P,) float64
        """
        tables: list[tuple[I8, I8, Scores]] = []
        for file in self.tasks:
            table = pq.read_table(work.folder / file)
            one, two = (table[name].to_numpy().astype(np.int64) for name in ("one", "two"))
            score = table["score"].to_numpy()
            # A pair of an unordered table is read in both directions.
            for query, other in ((one, two), (two, one)) if self.unordered else ((one, two),):
                selected = _among(query, queries)
                tables.append((query[selected], other[selected], score[selected]))
        query, other, score = (np.concatenate(parts) for parts in zip(*tables, strict=True))
        order = np.lexsort((other, query))
        return query[order], other[order], score[order]

    def _owned_pairs(self, owners: I8) -> tuple[I8, I8]:
        """Return the pairs of some owners that pass the gate, without pairs of a text with itself."""
        if not self.unordered:
            one, two = self.captions.passing(owners, self.candidates)
            owned = np.ones(len(one), bool)
        else:
            one, two = self.captions.passing(owners, self.owners)
            # The parity of the sum picks the owner, so each caption owns about half of its pairs.
            owned = np.where((one + two) % 2 == 0, one < two, one > two)
            asked_for = _among(one, self.queries) & _among(two, self.candidates)
            owned &= asked_for | (_among(two, self.queries) & _among(one, self.candidates))
        owned &= self.captions.text[one] != self.captions.text[two]
        return one[owned], two[owned]

    def _keys(self, one: I8, two: I8) -> I8:
        """Return the keys of the texts of P pairs."""
        text = self.captions.text
        return self.captions.relevance.keys(text[one], text[two])


def _among(values: I8, members: I8) -> NDArray[np.bool_]:
    """Return a mask of the values that are among `members`, which ascend."""
    if not len(members):
        return np.zeros(len(values), bool)
    return np.asarray(members[np.minimum(np.searchsorted(members, values), len(members) - 1)] == values)
