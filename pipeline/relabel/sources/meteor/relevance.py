"""Relevance by METEOR of an opened encoding, and neighbours behind a gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.threads import run_chunks
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.finder import BlockFinder, Finder, Search
from relabel.sources.meteor.jar import LONGEST
from relabel.sources.relevance import Relevance

if TYPE_CHECKING:
    from relabel.sources.meteor.tables import Tables

_PAIRS = 4096  # pairs per chunk of a thread


@dataclass(frozen=True, eq=False, repr=False)
class MeteorRelevance(Relevance):
    """METEOR of encoded captions.

    `tables`: tables of the encoded rows.
    `with_text`: returns the tables of a new text, followed by encoded rows, given by position.
    `gate`: relevance of the label that selects candidates for neighbour search. `gate_top`: number of candidates.
    """

    tables: Tables
    with_text: Callable[[str, NDArray[np.int64]], Tables]
    threads: int
    gate: Relevance | None = None
    gate_top: int = 1000

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs. `max` and `set` are equal, because METEOR takes the maximum over references."""
        pooling = pooling or self.pooling
        sets = self.set_positions(references, pooling)
        each = np.repeat(self.positions(captions), np.diff(sets.indptr))
        scores = score_texts(self.tables, sets.rows, each.astype(np.int32), self.threads)
        return sets.pool(scores, "max" if pooling == "set" else pooling)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Score N captions against one new text. Runs Java to normalise and stem the text."""
        positions, places = np.unique(self.positions(captions), return_inverse=True)
        tables = self.with_text(text, positions)
        return score_texts(tables, np.zeros(len(captions), np.int32), (places + 1).astype(np.int32), self.threads)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        if self.gate is None:
            return super().finder(search, pooling, runtime)
        return BlockFinder.behind(self, search, pooling or self.pooling, self.gate, self.gate_top, runtime)


def score_texts(tables: Tables, references: Rows, captions: Rows, threads: int) -> Scores:
    """Score P pairs of texts, given by number: (P,) float64."""
    # Imported here, because compiled functions are only needed for scoring.
    from relabel.sources.meteor.align import Buffers, score_pairs

    out, longest = np.empty(len(captions)), min(LONGEST, int(np.diff(tables.indptr).max(initial=0)))

    def work(lo: int, hi: int) -> None:
        buffers = Buffers.allocate(longest)
        while lo < hi:
            lo += score_pairs(references[lo:hi], captions[lo:hi], tables, buffers, out[lo:hi])
            buffers = Buffers.allocate(longest, 2 * len(buffers.matches)) if lo < hi else buffers

    run_chunks(work, len(out), threads, _PAIRS)
    return out
