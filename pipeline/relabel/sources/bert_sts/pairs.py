"""Pairs of texts, with the gate that selects pairs and their scores by the cross-encoder.

With a model of images, the first item of a pair is an image: that of the first reference of a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relabel.core.parsing import check_regular
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.relevance import Relevance

if TYPE_CHECKING:
    from relabel.sources.bert_sts.scorer import PairScorer

Keys = NDArray[np.int64]
"""Keys of pairs of texts: the first row of the first text in the upper 32 bits, that of the second in the lower 32.

An image is identified by the row of its first caption.
"""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class TextPairs(Relevance):
    """Scores of a cross-encoder for the pairs that pass the gate.

    The relevance of two captions depends only on their texts, without white space at the ends. A text is identified by
    the first row with this text, and the gate scores this row. A text has relevance 1 to itself without being scored,
    as in the released code of Ladder Loss.

    `coarse`: relevance by the gate; None refines all pairs. `threshold`: threshold of the gate, or None.
    `scorer`: loads the cross-encoder; cached.
    """

    params: BertStsParams
    coarse: Relevance | None
    threshold: float | None
    scorer: Callable[[], PairScorer]
    runtime: Runtime

    def compared(self, references: References, pooling: Pooling) -> References:
        """Return the texts or the image of each reference set that the cross-encoder reads."""
        if self.params.images is None:
            sets = references.first() if pooling == "first" else references
            return References(sets.indptr, self.text_rows(sets.rows))
        images = self.corpus.image[references.first().rows]
        return References.single(self.corpus.references(images, 1).rows)

    def gate_sets(self, rows: Rows, pooling: Pooling) -> References:
        """Return the reference sets that the gate scores: single texts, or the captions of images."""
        if self.params.images is None:
            return References.single(rows)
        sets = self.corpus.references(self.corpus.image[rows])
        return sets.first() if pooling == "first" else sets

    def text_rows(self, rows: Rows) -> Rows:
        """Return the first row with the same text for each corpus row. A failed row is returned unchanged."""
        texts: Rows = self._first_row[self.positions(rows)]
        return texts

    def keys(self, first: Rows, second: Rows) -> Keys:
        """Return the keys of P pairs of texts. If both orders are averaged, the smaller row comes first."""
        left, right = first.astype(np.int64), second.astype(np.int64)
        if self.params.symmetric:
            left, right = np.minimum(left, right), np.maximum(left, right)
        return (left << 32) | right

    def gated(self, keys: Keys, pooling: Pooling) -> tuple[Scores, Mask]:
        """Return the relevance of D pairs of texts without refinement, and a mask of the pairs to refine."""
        left, right = rows_of(keys)
        coarse = None if self.coarse is None else self.coarse.pairs(self.gate_sets(left, pooling), right, pooling)
        same = left == right if self.params.images is None else np.zeros(len(keys), bool)
        return self.apply_gate(coarse, same)

    def refine(self, keys: Keys) -> Scores:
        """Score D pairs of texts with the cross-encoder: (D,) float64 in 0..1."""
        left, right = rows_of(keys)
        if self.params.images is None:
            return self.score(self.texts(left), self.texts(right))
        files = image_files(self.params.images, self.corpus, self.corpus.image[left].tolist())
        return self.score([str(file) for file in files], self.texts(right))

    def apply_gate(self, coarse: Scores | None, same: Mask) -> tuple[Scores, Mask]:
        """Apply the gate to P pairs, given their scores by it and a mask of the pairs of equal texts; see `gated`."""
        if coarse is None or self.threshold is None:
            return same.astype(np.float64), ~same
        scores = same.astype(np.float64)
        # A failed caption has no relevance, not even to itself.
        scores[np.isnan(coarse)] = np.nan
        return scores, (coarse >= self.threshold) & ~same

    def score(self, first: Sequence[str], second: Sequence[str]) -> Scores:
        """Score pairs of texts in the given order, or in both orders and average."""
        # The model is not loaded if no pair passes.
        if not len(first):
            return np.empty(0)
        scores = self.scorer().score(first, second)
        return (scores + self.scorer().score(second, first)) / 2 if self.params.symmetric else scores

    def texts(self, rows: Rows) -> list[str]:
        """Return the texts of corpus rows, without white space at the ends."""
        return [self.corpus.texts[row].strip() for row in rows.tolist()]

    @cached_property
    def _first_row(self) -> Rows:
        """First row with the same text for each encoded row; a failed row itself."""
        failed, first = set(self.failed.tolist()), dict[str, int]()
        every = np.array(self.rows, np.int32)
        texts = zip(self.rows, self.texts(every), strict=True)
        return np.array([row if row in failed else first.setdefault(text, row) for row, text in texts], np.int32)


def image_files(pattern: str, corpus: Corpus, images: Iterable[int]) -> list[Path]:
    """Return the files of images, given by their numbers; raise if one is missing."""
    ids = (corpus.image_ids[image].partition(":")[2] for image in images)
    return [check_regular(Path(pattern.format(id=i)), "no such image; check the parameter `images`") for i in ids]


def rows_of(keys: Keys) -> tuple[Rows, Rows]:
    """Return the first rows of both texts of D pairs, given by keys."""
    return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)
