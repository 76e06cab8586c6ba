"""Relevance of bert_sts: a gate scores all pairs of captions, and a cross-encoder refines those that pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Advance, Runtime, ignore_progress
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.bert_sts.token_pairs import Texts
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance, pool

if TYPE_CHECKING:
    from relabel.sources.bert_sts.scorer import PairScorer

Below = Literal["zero", "gate"]
Orders = Literal["both", "one"]
Output = Literal["sigmoid", "raw"]
Keys = NDArray[np.int64]

_LOW = 0xFFFFFFFF  # lower 32 bits of a key


@dataclass(frozen=True)
class Gate:
    """Condition under which pairs are refined.

    `label`: label whose score decides; None lets all pairs pass.
    `threshold`: a pair passes if its score by the label is at least this.
    `below`: relevance of a pair that does not pass: 0, or the label's score clipped to 0..1.
    """

    label: str | None
    threshold: float
    below: Below

    def passes(self, coarse: Scores | None, count: int) -> NDArray[np.bool_]:
        """Return a mask of the P pairs that pass; a score of NaN does not."""
        return np.ones(count, bool) if coarse is None else np.asarray(coarse >= self.threshold)

    def rest(self, coarse: Scores | None, count: int) -> Scores:
        """Return the relevance of P pairs if none passed: (P,) float64, NaN where the gate's score is NaN."""
        if coarse is None:
            return np.zeros(count)
        if self.below == "gate":
            return np.clip(coarse, 0.0, 1.0)
        return np.where(np.isnan(coarse), np.nan, 0.0)

    def describe(self) -> str:
        """Return the condition in a few words."""
        return "there is no gate" if self.label is None else f"{self.label} >= {self.threshold:g}"


@dataclass(frozen=True, eq=False, repr=False)
class BertStsRelevance(Relevance):
    """Scores of a cross-encoder for the pairs that pass the gate.

    A text has relevance 1 to itself without being scored, as in the released code of Ladder Loss.

    `texts`: distinct texts of the encoded captions, as token ids.
    `text`: text of each encoded row.
    `coarse`: the gate's label, opened.
    `orders`: "both" averages both orders of a pair, "one" puts the reference first.
    `scorer`: loads the cross-encoder; further calls return the same one.
    `max_pairs`: limit of `check_limit`.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    texts: Texts
    text: Rows
    gate: Gate
    coarse: Relevance | None
    orders: Orders
    scorer: Callable[[], PairScorer]
    max_pairs: int | None
    runtime: Runtime
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32))

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of a reference set and a caption; each distinct pair of texts is scored once per call."""
        how = pooling or self.pooling
        if how == "paired":
            references = references.first()
        each = np.repeat(captions, np.diff(references.indptr)).astype(np.int32)
        return pool(self._score_captions(references.rows, each), references.indptr, how)

    @override
    def pairs_to_score(self, references: References, captions: Rows, total: int) -> int:
        sets = references.first() if self.pooling == "paired" else references
        keys = self._gated(sets.rows, np.repeat(captions, np.diff(sets.indptr)).astype(np.int32))[2]
        count = round(len(keys) * total / max(1, len(captions)))
        self.check_limit(count)
        return count

    def check_limit(self, pairs: int) -> None:
        """Log an estimated number of pairs of texts to refine; raise UsageError if it is above `max_pairs`."""
        message = f"about {pairs:,} pairs to refine ({self.gate.describe()})"
        if self.max_pairs is not None and pairs > self.max_pairs:
            todo = "Raise `max_pairs` or `threshold`, name another `gate`, or ask for fewer captions."
            raise UsageError(f"{message}; max_pairs is {self.max_pairs:,}", todo=todo)
        if pairs:
            self.runtime.progress.note(message)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        # A terminal can pass surrogates, which no tokenizer accepts.
        typed = text.encode(errors="replace").decode()
        coarse = None if self.coarse is None else self.coarse.query(typed, captions)
        out, passes = self.gate.rest(coarse, len(captions)), self.gate.passes(coarse, len(captions))
        texts, inverse = np.unique(self._text(captions[passes]), return_inverse=True)
        ids = self.scorer().tokenize([typed])[0]
        joined = Texts(
            np.append(self.texts.ids, np.array(ids, np.int32)),
            np.append(self.texts.indptr, len(self.texts.ids) + len(ids)),
        )
        query = np.full(len(texts), len(self.texts))
        scores = self._score_texts(joined, query, texts.astype(np.int64))
        for i, t in enumerate(texts.tolist()):
            # The new text may equal a text of the corpus, which has relevance 1 to itself.
            if np.array_equal(self.texts[t], ids):
                scores[i] = 1.0
        out[passes] = scores[inverse.reshape(-1)]
        return out

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        from relabel.sources.bert_sts.search import GatedFinder

        return GatedFinder(self, search, pooling or self.pooling, runtime)

    def refine(self, keys: Keys, advance: Advance = ignore_progress) -> Scores:
        """Score D pairs of texts with the cross-encoder.

        `keys`: (D,) int64; number of the first text in the upper 32 bits, of the second in the lower 32 bits (see
        `keys`). `advance`: receives the number of further pairs that are done. Returns (D,) float64 in 0..1.
        """
        return self._score_texts(self.texts, keys >> 32, keys & _LOW, advance)

    def keys(self, first: Rows, second: Rows) -> Keys:
        """Return the keys of P pairs of texts. If both orders are averaged, the smaller text comes first."""
        one, two = first.astype(np.int64), second.astype(np.int64)
        if self.orders == "both":
            one, two = np.minimum(one, two), np.maximum(one, two)
        return (one << 32) | two

    def _score_texts(self, texts: Texts, first: Keys, second: Keys, advance: Advance = ignore_progress) -> Scores:
        """Score pairs of texts in the given order, or in both orders and average."""
        if not len(first):
            return np.empty(0)
        scorer = self.scorer()
        if self.orders == "one":
            return scorer.score(texts, first, second, advance)
        halves = 0

        def count_half(count: int) -> None:
            nonlocal halves
            # Two scores make one pair, and batches may end between them.
            pairs, halves = divmod(halves + count, 2)
            advance(pairs)

        first_texts, second_texts = np.concatenate([first, second]), np.concatenate([second, first])
        scores = scorer.score(texts, first_texts, second_texts, count_half)
        return (scores[: len(first)] + scores[len(first) :]) / 2

    def _score_captions(self, references: Rows, captions: Rows) -> Scores:
        """Score P pairs of captions, (P,) float64."""
        out, refined, keys, inverse = self._gated(references, captions)
        out[refined] = self.refine(keys)[inverse]
        return out

    def _gated(self, references: Rows, captions: Rows) -> tuple[Scores, NDArray[np.bool_], Keys, NDArray[np.int64]]:
        """Apply the gate to P pairs of captions.

        Returns `scores`, (P,) float64: scores of the pairs that are not refined; `refined`, (P,) bool; `keys`, (D,)
        int64: distinct pairs of texts of the R refined pairs; `inverse`, (R,) int64: key of each refined pair.
        """
        count = len(captions)
        one, two = self._text(references), self._text(captions)
        coarse = self.coarse.pairs(References.single(references), captions, "paired") if self.coarse else None
        out = self.gate.rest(coarse, count)
        # A pair of failed captions stays NaN, even if their texts are equal.
        same = (one == two) & ~np.isnan(out)
        out[same] = 1.0
        refined = self.gate.passes(coarse, count) & ~same
        keys, inverse = np.unique(self.keys(one[refined], two[refined]), return_inverse=True)
        return out, refined, keys, inverse.reshape(-1)

    def _text(self, rows: Rows) -> Rows:
        """Return the texts of corpus rows."""
        texts: Rows = self.text[self.positions(rows)]
        return texts
