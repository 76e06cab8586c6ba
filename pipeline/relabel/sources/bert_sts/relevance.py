"""Coarse to fine: a gate looks at every pair, a cross-encoder at what passes, each unordered pair of texts once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.progress import Advance, ignore_progress
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.bert_sts.token_pairs import Texts
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import GateCounts, Relevance, pool
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.scorer import PairScorer

Below = Literal["zero", "gate"]
Orders = Literal["both", "one"]
Keys = NDArray[np.int64]

_LOW = 0xFFFFFFFF
_MET = 64  # keys that are kept of each call, about


@dataclass(frozen=True)
class Gate:
    """What lets pairs through.

    Attributes
    ----------
    label : str or None
        Name of the label; None lets all pairs through.
    threshold : float
        A pair passes whose score by the gate is at least this.
    below : "zero" or "gate"
        Relevance of a pair that does not pass: 0, or the gate's score cut to 0..1.
    """

    label: str | None
    threshold: float
    below: Below

    def passes(self, coarse: Scores | None, count: int) -> NDArray[np.bool_]:
        """Say of P pairs whether they pass; a NaN does not."""
        return np.ones(count, bool) if coarse is None else np.asarray(coarse >= self.threshold)

    def rest(self, coarse: Scores | None, count: int) -> Scores:
        """Relevance of P pairs as if none passed: NaN where the gate has none."""
        if coarse is None:
            return np.zeros(count)
        if self.below == "gate":
            return np.clip(coarse, 0.0, 1.0)
        return np.where(np.isnan(coarse), np.nan, 0.0)

    def said(self) -> str:
        """Say what passes, in a few words."""
        return "there is no gate" if self.label is None else f"{self.label} >= {self.threshold:g}"


@dataclass(frozen=True, eq=False)
class BertStsRelevance(Relevance):
    """Scores of a cross-encoder where the gate lets a pair through.

    A text against itself has relevance 1 without asking, as in the released code of Ladder.

    Attributes
    ----------
    texts : Texts
        Distinct texts of the encoded captions, as token ids.
    text : (len(rows),) int32
        Which of them each encoded row reads.
    gate : Gate
    coarse : Relevance or None
        The gate's label, opened.
    orders : "both" or "one"
        Mean of both orders of a pair, or the reference first.
    scorer : callable
        Loads the cross-encoder; asked again, returns the same.
    max_pairs : int or None
        Limit of `relabel.sources.bert_sts.cost.log_cost`.
    runtime : Runtime
    tally : dict of str to int
        Counts since it was opened: pairs of captions `asked` for and `passed`, pairs of texts `refined`.
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
    tally: dict[str, int] = field(default_factory=lambda: {"asked": 0, "passed": 0, "refined": 0})

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Each distinct pair of texts that passes is scored once a call."""
        how = pooling or self.pooling
        if how == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        each = np.repeat(captions, np.diff(references.indptr)).astype(np.int32)
        return pool(self._singles(references.rows, each), references.indptr, how)

    def counting(self) -> CountingRelevance:
        """Make a twin that looks through the gate and refines nothing."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "tally"}
        return CountingRelevance(**own)

    @override
    def estimate_seconds(self, references: References, captions: Rows, total: int, title: str) -> float | None:
        from relabel.sources.bert_sts.cost import log_cost

        twin = self.counting()
        twin.pairs(references, captions)
        share = twin.tally["refined"] / max(1, len(captions))
        return log_cost(self, round(share * total), twin.sample, title)

    @override
    def log_run_cost(self, run: Callable[[Relevance, Work], None], title: str) -> None:
        from relabel.sources.bert_sts.cost import log_cost_of

        log_cost_of(self, run, title)

    @override
    def gate_counts(self) -> GateCounts | None:
        return GateCounts(vars(self.gate), dict(self.tally))

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        typed = text.encode(errors="replace").decode()  # a terminal can pass what is no Unicode
        coarse = None if self.coarse is None else self.coarse.query(typed, captions)
        out, passes = self.gate.rest(coarse, len(captions)), self.gate.passes(coarse, len(captions))
        asked, which = np.unique(self._text(captions[passes]), return_inverse=True)
        ids = self.scorer().tokenize([typed])[0]
        joined = Texts(
            np.append(self.texts.ids, np.array(ids, np.int32)),
            np.append(self.texts.indptr, len(self.texts.ids) + len(ids)),
        )
        new = np.full(len(asked), len(self.texts))
        scores = self._ordered(joined, new, asked.astype(np.int64))
        for i, t in enumerate(asked.tolist()):
            if np.array_equal(self.texts[t], ids):
                scores[i] = 1.0
        out[passes] = scores[which.reshape(-1)]
        return out

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        from relabel.sources.bert_sts.search import GatedFinder

        return GatedFinder(self, search, pooling or self.pooling, runtime)

    def refine(self, keys: Keys, advance: Advance = ignore_progress) -> Scores:
        """Score D pairs of texts, (D,) float64 in 0..1; `keys` hold the first text above, the second below 32 bits."""
        self.tally["refined"] += len(keys)
        return self._ordered(self.texts, keys >> 32, keys & _LOW, advance)

    def keys(self, first: Rows, second: Rows) -> Keys:
        """Keys of P pairs of texts: ascending within a pair where both orders count."""
        one, two = first.astype(np.int64), second.astype(np.int64)
        if self.orders == "both":
            one, two = np.minimum(one, two), np.maximum(one, two)
        return (one << 32) | two

    def _ordered(self, texts: Texts, first: Keys, second: Keys, advance: Advance = ignore_progress) -> Scores:
        if not len(first):
            return np.empty(0)
        scorer = self.scorer()
        if self.orders == "one":
            return scorer.score(texts, first, second, advance)
        left = 0

        def half(more: int) -> None:
            nonlocal left
            whole, left = divmod(left + more, 2)
            advance(whole)

        ones, twos = np.concatenate([first, second]), np.concatenate([second, first])
        found = scorer.score(texts, ones, twos, half)
        return (found[: len(first)] + found[len(first) :]) / 2

    def _singles(self, references: Rows, captions: Rows) -> Scores:
        """Score P pairs of captions."""
        count = len(captions)
        one, two = self._text(references), self._text(captions)
        coarse = self.coarse.pairs(References.single(references), captions, "paired") if self.coarse else None
        out = self.gate.rest(coarse, count)
        same = (one == two) & ~np.isnan(out)
        out[same] = 1.0
        ask = self.gate.passes(coarse, count) & ~same
        keys, which = np.unique(self.keys(one[ask], two[ask]), return_inverse=True)
        self.tally["asked"] += count
        self.tally["passed"] += len(which)
        out[ask] = self.refine(keys)[which.reshape(-1)]
        return out

    def _text(self, rows: Rows) -> Rows:
        texts: Rows = self.text[self.positions(rows)]
        return texts


@dataclass(frozen=True, eq=False)
class CountingRelevance(BertStsRelevance):
    """Looks through the gate and counts; every refined score is 0. Keeps some of the keys it met."""

    met: list[Keys] = field(default_factory=list)

    @property
    def sample(self) -> Keys:
        """Some pairs of texts that pass."""
        return np.concatenate(self.met) if self.met else np.empty(0, np.int64)

    def refine(self, keys: Keys, advance: Advance = ignore_progress) -> Scores:
        """Count D pairs of texts."""
        self.tally["refined"] += len(keys)
        self.met.append(keys[:: max(1, len(keys) // _MET)])
        return np.zeros(len(keys))
