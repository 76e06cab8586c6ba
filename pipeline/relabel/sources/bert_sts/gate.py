"""Which pairs pass the gate: one look at all of them by matrix products, then the gate's own score of what is near.

Captions are dealt into classes: one text, one vector of the gate. What holds of two classes holds of their captions.
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
class Classes:
    """The classes of the encoded captions that have not failed.

    Attributes
    ----------
    relevance : BertStsRelevance
    of : (len(rows),) int64
        Class of each encoded row; -1 for a failed one.
    row : (K,) int32
        One corpus row of each class.
    """

    relevance: BertStsRelevance
    of: I8
    row: Rows

    @classmethod
    def find(cls, relevance: BertStsRelevance) -> Classes:
        """Deal the encoded captions into classes."""
        coarse, rows = relevance.coarse, relevance.rows
        vectors = None if coarse is None else coarse.unit_vectors()
        failed = set((relevance.failed.astype(np.int64) - rows.start).tolist())
        of, numbers, row = np.full(len(rows), -1, np.int64), dict[tuple[int, bytes], int](), list[int]()
        for i, text in enumerate(relevance.text.tolist()):
            if i in failed:
                continue
            own = b"" if vectors is None else hashlib.blake2b(vectors[i].tobytes(), digest_size=16).digest()
            of[i] = numbers.setdefault((text, own), len(numbers))
            if of[i] == len(row):
                row.append(rows.start + i)
        return cls(relevance, of, np.array(row, np.int32))

    def __len__(self) -> int:
        return len(self.row)

    def at(self, rows: Rows) -> I8:
        """Classes of corpus rows; -1 for a failed one."""
        found: I8 = self.of[rows.astype(np.int64) - self.relevance.rows.start]
        return found

    @cached_property
    def text(self) -> Rows:
        """Text of each class, (K,) int32."""
        found: Rows = self.relevance.text[self.row - self.relevance.rows.start]
        return found

    @cached_property
    def slack(self) -> float:
        """What a float32 product of two vectors is off by at most (see neighbours.screening)."""
        width = 1 if self._vectors is None else self._vectors.shape[1]
        longest = max((float(np.linalg.norm(self.near(p), axis=1).max()) for p in self._parts()), default=1.0)
        return 4 * (width + 8) * 2.0**-24 * (longest * 1.001) ** 2 + 1e-30

    @property
    def _vectors(self) -> F4 | None:
        coarse = self.relevance.coarse
        return None if coarse is None else coarse.unit_vectors()

    def near(self, classes: I8) -> F4:
        """Vectors of some classes, (n, D)."""
        assert self._vectors is not None
        found: F4 = self._vectors[self.row[classes] - self.relevance.rows.start]
        return found

    def _parts(self) -> list[I8]:
        every = np.arange(len(self)) if self._vectors is not None else np.empty(0, np.int64)
        return [every[a : a + _SLAB] for a in range(0, len(every), _SLAB)]

    def coarse(self, one: I8, two: I8) -> Scores | None:
        """Score P pairs of classes by the gate, to the bit as `pairs` does; None without a gate."""
        coarse = self.relevance.coarse
        if coarse is None:
            return None
        return coarse.pairs(References.single(self.row[one]), self.row[two], "paired")

    def passing(self, asked: I8, among: I8) -> tuple[I8, I8]:
        """List the pairs of n classes and m classes that pass, in order of both: two (P,) int64 of class numbers."""
        if self._vectors is None:
            return np.repeat(asked, len(among)), np.tile(among, len(asked))
        left, found = self.near(asked), list[tuple[I8, I8]]()
        least = self.relevance.gate.threshold - self.slack
        for a in range(0, len(among), _SLAB):
            some = among[a : a + _SLAB]
            i, j = np.nonzero(left @ self.near(some).T >= np.float32(least) - np.spacing(np.float32(least)))
            one, two = asked[i], some[j]
            kept = self.relevance.gate.passes(self.coarse(one, two), len(one))
            found.append((one[kept], two[kept]))
        one, two = (np.concatenate(parts) for parts in zip(*found, strict=True)) if found else (asked[:0], among[:0])
        order = np.lexsort((two, one))
        return one[order], two[order]
