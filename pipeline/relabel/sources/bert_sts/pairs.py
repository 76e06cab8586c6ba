"""Pairs of texts: which pass the gate, and the scores of those by the cross-encoder.

By a model of images, the first member of a pair is an image instead: that of the first reference of a set.
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
"""Pairs of texts: the first row of the first text in the upper 32 bits, that of the second in the lower 32 bits.

An image is identified by the row of its first caption.
"""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class TextPairs(Relevance):
    """Scores of a cross-encoder for the pairs that pass the gate.

    The relevance of two captions is that of their texts, without white space at the ends. A text stands for all rows
    that have it, and is identified by the first of them, whose score by the gate counts. A text has relevance 1 to
    itself without being scored, as in the released code of Ladder Loss.

    `coarse`: the gate's label, opened; None refines all pairs. `threshold`: that of the gate; None without one.
    `scorer`: loads the cross-encoder; further calls return the same one.
    """

    params: BertStsParams
    coarse: Relevance | None
    threshold: float | None
    scorer: Callable[[], PairScorer]
    runtime: Runtime

    def compared(self, references: References, pooling: Pooling) -> References:
        """Return the texts, or the image, that each reference set is scored by."""
        if self.params.images is None:
            sets = references.first() if pooling == "first" else references
            return References(sets.indptr, self.text_rows(sets.rows))
        images = self.corpus.image[references.first().rows]
        return References.single(self.corpus.references(images, 1).rows)

    def gate_sets(self, rows: Rows, pooling: Pooling) -> References:
        """Return the captions by which the gate scores texts, or images with a pooling of their captions."""
        if self.params.images is None:
            return References.single(rows)
        sets = self.corpus.references(self.corpus.image[rows])
        return sets.first() if pooling == "first" else sets

    def text_rows(self, rows: Rows) -> Rows:
        """Return the texts of corpus rows, each as its first row. A failed row stands for itself."""
        texts: Rows = self._first_row[self.positions(rows)]
        return texts

    def keys(self, first: Rows, second: Rows) -> Keys:
        """Return the keys of P pairs of texts. If both orders are averaged, the smaller row comes first."""
        one, two = first.astype(np.int64), second.astype(np.int64)
        if self.params.symmetric:
            one, two = np.minimum(one, two), np.maximum(one, two)
        return (one << 32) | two

    def gated(self, keys: Keys, pooling: Pooling) -> tuple[Scores, Mask]:
        """Return the relevance of D pairs of texts as if none passed the gate, and a mask of those to refine."""
        one, two = rows_of(keys)
        coarse = None if self.coarse is None else self.coarse.pairs(self.gate_sets(one, pooling), two, pooling)
        same = one == two if self.params.images is None else np.zeros(len(keys), bool)
        return self.apply_gate(coarse, same)

    def refine(self, keys: Keys) -> Scores:
        """Score D pairs of texts with the cross-encoder: (D,) float64 in 0..1."""
        one, two = rows_of(keys)
        if self.params.images is None:
            return self.score(self.texts(one), self.texts(two))
        files = image_files(self.params.images, self.corpus, self.corpus.image[one].tolist())
        return self.score([str(file) for file in files], self.texts(two))

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
        """First row with the text of each encoded row; a failed row itself."""
        failed, first = set(self.failed.tolist()), dict[str, int]()
        every = np.array(self.rows, np.int32)
        texts = zip(self.rows, self.texts(every), strict=True)
        return np.array([row if row in failed else first.setdefault(text, row) for row, text in texts], np.int32)


def image_files(pattern: str, corpus: Corpus, images: Iterable[int]) -> list[Path]:
    """Return the files of images, given by their numbers; raise if one is missing."""
    ids = (corpus.image_ids[image].partition(":")[2] for image in images)
    return [check_regular(Path(pattern.format(id=one)), "no such image; `images` names the files") for one in ids]


def rows_of(keys: Keys) -> tuple[Rows, Rows]:
    """Return the first rows of both texts of D pairs."""
    return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)
