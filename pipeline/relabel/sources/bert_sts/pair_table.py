"""Pairs of captions that pass the gate, and the table of refined pairs that all queries of a search share.

A prefilter by matrix products finds the pairs, and pairs near the threshold get their exact score. Captions with the
same text and the same vector of the gate are treated as one. Each pair of the table belongs to one task.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.types import Rows, Scores
from relabel.corpus import References
from relabel.store.workdir import Step, Work, table_task

if TYPE_CHECKING:
    from relabel.sources.bert_sts.relevance import BertStsRelevance

I8 = NDArray[np.int64]
_OWNERS = 256  # owners per task, behind a gate
_PAIRS = 1 << 17  # approximate number of pairs per task, without a gate
_SAMPLE = 256  # owners whose pairs are counted for the estimate
SCHEMA = pa.schema([pa.field("one", pa.int32()), pa.field("two", pa.int32()), pa.field("score", pa.float64())])
"""Two distinct captions (query and candidate, if the order counts) and their refined score."""
F4 = NDArray[np.float32]
_SLAB = 1 << 13


@dataclass(frozen=True, eq=False)
class DistinctCaptions:
    """Distinct captions among the encoded ones that have not failed: one text with one vector of the gate.

    Any statement about two distinct captions holds for all captions they stand for.

    `of_row`: distinct caption of each encoded row; -1 for a failed one.
    `row`: (K,) int32; one corpus row of each distinct caption.
    """

    relevance: BertStsRelevance
    of_row: I8
    row: Rows

    @classmethod
    def of(cls, relevance: BertStsRelevance) -> DistinctCaptions:
        """Number the distinct captions in the order of their first rows."""
        coarse, rows = relevance.coarse, relevance.rows
        vectors = None if coarse is None else coarse.unit_vectors()
        failed = set((relevance.failed.astype(np.int64) - rows.start).tolist())
        of_row, number_of, row = np.full(len(rows), -1, np.int64), dict[tuple[int, bytes], int](), list[int]()
        for i, text in enumerate(relevance.text.tolist()):
            if i in failed:
                continue
            # Vectors are compared by digest: equal texts may differ in their vector.
            vector = b"" if vectors is None else hashlib.blake2b(vectors[i].tobytes(), digest_size=16).digest()
            of_row[i] = number_of.setdefault((text, vector), len(number_of))
            if of_row[i] == len(row):
                row.append(rows.start + i)
        return cls(relevance, of_row, np.array(row, np.int32))

    def __len__(self) -> int:
        """Return the number of distinct captions."""
        return len(self.row)

    def numbers(self, rows: Rows) -> I8:
        """Return the distinct captions of corpus rows; -1 for a failed row."""
        numbers: I8 = self.of_row[rows.astype(np.int64) - self.relevance.rows.start]
        return numbers

    @cached_property
    def text(self) -> Rows:
        """Text of each distinct caption, (K,) int32."""
        texts: Rows = self.relevance.text[self.row - self.relevance.rows.start]
        return texts

    @cached_property
    def slack(self) -> float:
        """Bound on the error of a float32 product of two vectors (as in `relabel.topk.bounded_matmul`)."""
        width = 1 if self._vectors is None else self._vectors.shape[1]
        # Vectors of a gate need not have exactly unit length after rounding.
        longest = max((float(np.linalg.norm(self.vectors(p), axis=1).max()) for p in self._parts()), default=1.0)
        return 4 * (width + 8) * 2.0**-24 * (longest * 1.001) ** 2 + 1e-30

    @property
    def _vectors(self) -> F4 | None:
        """Vectors of the gate; None without a gate."""
        coarse = self.relevance.coarse
        return None if coarse is None else coarse.unit_vectors()

    def vectors(self, captions: I8) -> F4:
        """Return the gate's vectors of some distinct captions, (n, D)."""
        assert self._vectors is not None
        vectors: F4 = self._vectors[self.row[captions] - self.relevance.rows.start]
        return vectors

    def _parts(self) -> list[I8]:
        """Return the numbers of all distinct captions in slabs; none without a gate."""
        captions = np.arange(len(self)) if self._vectors is not None else np.empty(0, np.int64)
        return [captions[a : a + _SLAB] for a in range(0, len(captions), _SLAB)]

    def coarse(self, one: I8, two: I8) -> Scores | None:
        """Score P pairs by the gate, bit-identical to its `pairs`; None without a gate."""
        coarse = self.relevance.coarse
        if coarse is None:
            return None
        return coarse.pairs(References.single(self.row[one]), self.row[two], "paired")

    def passing(self, queries: I8, candidates: I8) -> tuple[I8, I8]:
        """Return the pairs of n queries and m candidates that pass the gate, ordered by both.

        `queries`, `candidates`: (n,) and (m,) int64; distinct captions. Returns `one, two`, (P,) int64.
        """
        if self._vectors is None:
            return np.repeat(queries, len(candidates)), np.tile(candidates, len(queries))
        left, passed = self.vectors(queries), list[tuple[I8, I8]]()
        least = self.relevance.gate.threshold - self.slack
        for a in range(0, len(candidates), _SLAB):
            slab = candidates[a : a + _SLAB]
            # Prefilter: a pair whose approximate score plus the error bound is below the threshold cannot pass.
            i, j = np.nonzero(left @ self.vectors(slab).T >= np.float32(least) - np.spacing(np.float32(least)))
            one, two = queries[i], slab[j]
            # The exact score of the gate decides.
            passes = self.relevance.gate.passes(self.coarse(one, two), len(one))
            passed.append((one[passes], two[passes]))
        one, two = (
            (np.concatenate(parts) for parts in zip(*passed, strict=True)) if passed else (queries[:0], candidates[:0])
        )
        order = np.lexsort((two, one))
        return one[order], two[order]


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs of a query and a candidate, refined if they pass the gate.

    `queries`, `candidates`: (n,) and (m,) int64; distinct captions, ascending.
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

    def step(self, work: Work) -> Step:
        """Return the step that makes the table; log the estimated number of missing pairs, and refuse too many."""
        missing = [owners for file, owners in self.tasks.items() if not work.done(file)]
        if missing:
            remaining = np.concatenate(missing)
            sample = np.sort(np.random.default_rng(0).permutation(remaining)[:_SAMPLE])
            one, two = self._owned_pairs(sample)
            keys = np.unique(self._keys(one, two))
            self.captions.relevance.check_limit(round(len(keys) * len(remaining) / len(sample)))
        tasks = [table_task(f, partial(self._refine, part), len(part), plain=True) for f, part in self.tasks.items()]
        return Step("refined pairs", "texts", tasks)

    def _refine(self, owners: I8) -> pa.Table:
        """Refine the pairs of some owners."""
        relevance, done, advanced = self.captions.relevance, 0, 0
        one, two = self._owned_pairs(owners)
        # Distinct captions may share a text: each pair of texts is scored once.
        keys, which = np.unique(self._keys(one, two), return_inverse=True)

        def count(increment: int) -> None:
            nonlocal done, advanced
            done += increment
            target = min(len(owners), done * len(owners) // max(1, len(keys)))
            relevance.runtime.progress.advance(target - advanced)
            advanced = target

        scores = relevance.refine(keys, count)[which.reshape(-1)] if len(keys) else np.empty(0)
        return pa.table([one.astype(np.int32), two.astype(np.int32), scores], schema=SCHEMA)

    def scores(self, work: Work, queries: I8) -> tuple[I8, I8, Scores]:
        """Read the refined pairs of some queries.

        `queries`: (q,) int64; distinct captions, ascending. Returns `query, other`, (P,) int64: pairs ordered by both;
        `score`, (P,) float64.
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
