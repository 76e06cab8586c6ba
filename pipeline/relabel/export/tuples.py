"""Tuples of an anchor, a positive and negatives, for the losses of sentence-transformers.

The candidate of highest relevance is the positive. The other candidates, ordered by relevance, are divided into as many
groups as there are negatives, and one is drawn from each group. Candidates are those of `relabel.export.pairs`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.export.pairs import CandidatePool, SamplesExport, caption_column
from relabel.export.params import ExportTuplesParams
from relabel.sources.relevance import Relevance


class TuplesExport(SamplesExport[ExportTuplesParams]):
    """Columns anchor, positive, negative_1, ..., scores, and an id of each text: anchor_id, positive_id, ..."""

    @property
    @override
    def least(self) -> int:
        return self.params.negatives + 2

    @property
    @override
    def rule(self) -> str:
        return (
            f"the best is the positive, and {self.params.negatives} groups of equal size by rank give one negative each"
        )

    @override
    def draw(
        self, corpus: Corpus, relevance: Relevance, pool: CandidatePool, anchors: Rows, rng: np.random.Generator
    ) -> pa.Table:
        count = self.params.negatives
        # Self pairs and repeated candidates are left out, so more are drawn than a tuple needs.
        width = max(self.params.candidates, 2 * (count + 1))
        left, right = pool.draw(anchors, width, rng, distinct=False)
        scores = relevance.pairs(References.single(left), right, "paired").reshape(-1, width)
        near = right.reshape(-1, width)
        tuples, kept, drawn_scores = [], [], []
        for anchor, rows, values in zip(anchors.tolist(), near, scores, strict=True):
            chosen = draw_tuple(rows, values, anchor, count, rng)
            if chosen is not None:
                kept.append(anchor)
                tuples.append(rows[chosen])
                drawn_scores.append(values[chosen])
        members = np.array(tuples, np.int32).reshape(-1, count + 1)
        names = ["positive", *(f"negative_{i}" for i in range(1, count + 1))]
        flat = pa.array(np.array(drawn_scores, np.float32).reshape(-1))
        texts = {name: caption_column(corpus, "text", members[:, i]) for i, name in enumerate(names)}
        ids = {f"{name}_id": caption_column(corpus, "caption_id", members[:, i]) for i, name in enumerate(names)}
        return pa.table(
            {
                "anchor": caption_column(corpus, "text", np.array(kept, np.int32)),
                **texts,
                "scores": pa.FixedSizeListArray.from_arrays(flat, count + 1),
                "anchor_id": caption_column(corpus, "caption_id", np.array(kept, np.int32)),
                **ids,
            }
        )


def draw_tuple(
    rows: Rows, scores: Scores, anchor: int, negatives: int, rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """Draw a positive and negatives of one anchor among its candidates.

    Parameters
    ----------
    rows : (N,) int32
        Candidates.
    scores : (N,) float64
    anchor : int
        Row of the anchor.
    negatives : int
    rng : numpy.random.Generator

    Returns
    -------
    (negatives + 1,) int64 or None
        Indices of the positive and then of the negatives, by falling rank. None if there are too few distinct
        candidates with a score.
    """
    usable = np.flatnonzero((rows != anchor) & np.isfinite(scores))
    # np.unique sorts by row: equal rows keep their first index.
    usable = usable[np.unique(rows[usable], return_index=True)[1]]
    if len(usable) <= negatives:
        return None
    ranked = usable[np.lexsort((rows[usable], -scores[usable]))]
    groups = np.array_split(ranked[1:], negatives)
    return np.array([ranked[0], *(rng.choice(group) for group in groups)], np.int64)
