"""Pairs that pass the gate: a prefilter by matrix products, then the exact score of pairs near the threshold.

Captions with the same text and the same vector of the gate are treated as one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Rows, Scores
from relabel.corpus import References

if TYPE_CHECKING:
    from relabel.sources.bert_sts.relevance import BertStsRelevance

I8 = NDArray[np.int64]
F4 = NDArray[np.float32]
_SLAB = 1 << 13


@dataclass(frozen=True, eq=False)
class DistinctCaptions:
    """Distinct captions among the encoded ones that have not failed: one text with one vector of the gate.

    Any statement about two distinct captions holds for all captions they stand for.

    Attributes
    ----------
    relevance : BertStsRelevance
    of_row : (len(rows),) int64
        Distinct caption of each encoded row; -1 for a failed one.
    row : (K,) int32
        One corpus row of each distinct caption.
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

        Parameters
        ----------
        queries, candidates : (n,) and (m,) int64
            Distinct captions.

        Returns
        -------
        one, two : (P,) int64
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
