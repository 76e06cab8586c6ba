"""Relevance of bert_sts: a gate scores all pairs of texts, and a cross-encoder refines the pairs that pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.bert_sts.pairs import Keys, TextPairs
from relabel.sources.finder import Finder, Search


class BertStsRelevance(TextPairs):
    """Relevance of reference sets and captions, computed from the scores of their texts."""

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of a reference set and a caption. Each distinct pair of texts is scored once per call."""
        pooling = pooling or self.pooling
        sets = self.compared(references, pooling)
        keys, inverse = self._distinct_pairs(sets, captions)
        scores, refined = self.gated(keys, pooling)
        scores[refined] = self.refine(keys[refined])
        return sets.pool(scores[inverse], pooling)

    @override
    def pairs_to_score(self, references: References, captions: Rows, total: int) -> int:
        sets = self.compared(references, self.pooling)
        _, refined = self.gated(self._distinct_pairs(sets, captions)[0], self.pooling)
        return round(int(refined.sum()) * total / max(1, len(captions)))

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        text = text.strip()
        rows, inverse = np.unique(self.text_rows(captions), return_inverse=True)
        texts = self.texts(rows)
        same = np.array([other == text for other in texts], bool)
        scores, refined = self.apply_gate(None if self.coarse is None else self.coarse.query(text, rows), same)
        to_refine = [texts[i] for i in np.flatnonzero(refined)]
        scores[refined] = self.score([text] * len(to_refine), to_refine)
        return scores[inverse]

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        from relabel.sources.bert_sts.search import GatedFinder

        return GatedFinder(self, search, pooling or self.pooling)

    def _distinct_pairs(self, sets: References, captions: Rows) -> tuple[Keys, NDArray[np.int64]]:
        """Return the distinct pairs of texts in P pairs of a set and a caption, and the index of each reference's."""
        each = np.repeat(captions, sets.sizes)
        return np.unique(self.keys(sets.rows, self.text_rows(each)), return_inverse=True)
