"""Relevance of bert_sts: a gate scores all pairs of captions, and a cross-encoder refines those that pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Advance, Runtime, ignore_progress
from relabel.core.tables import duration
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.bert_sts.token_pairs import Texts
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import GateCounts, Relevance, pool
from relabel.store.files import make_folder
from relabel.store.workdir import DONE, Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.scorer import PairScorer

Below = Literal["zero", "gate"]
Orders = Literal["both", "one"]
Output = Literal["sigmoid", "raw"]
Keys = NDArray[np.int64]

_LOW = 0xFFFFFFFF  # lower 32 bits of a key
_SAMPLE = 64  # approximate number of keys kept per call
_PROBE, _WARM = 192, 16  # pairs that are timed, and that warm up the model


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
    `max_pairs`: limit of `relabel.sources.bert_sts.relevance.log_cost`.
    `counts`: counts since the encoding was opened: pairs of captions `asked` and `passed`, pairs of texts `refined`.
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
    counts: dict[str, int] = field(default_factory=lambda: {"asked": 0, "passed": 0, "refined": 0})

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of a reference set and a caption; each distinct pair of texts is scored once per call."""
        how = pooling or self.pooling
        if how == "paired":
            references = references.first()
        each = np.repeat(captions, np.diff(references.indptr)).astype(np.int32)
        return pool(self._score_captions(references.rows, each), references.indptr, how)

    def dry_run(self) -> DryRunRelevance:
        """Return a copy that applies the gate and counts, but refines no pair."""
        values = {
            attribute.name: getattr(self, attribute.name) for attribute in fields(self) if attribute.name != "counts"
        }
        return DryRunRelevance(**values)

    @override
    def estimate_seconds(self, references: References, captions: Rows, total: int, title: str) -> float | None:

        counter = self.dry_run()
        counter.pairs(references, captions)
        share = counter.counts["refined"] / max(1, len(captions))
        return log_cost(self, round(share * total), counter.sample, title)

    @override
    def log_run_cost(self, run: Callable[[Relevance, Work], None], title: str) -> None:

        log_run_cost(self, run, title)

    @override
    def gate_counts(self) -> GateCounts | None:
        return GateCounts(vars(self.gate), dict(self.counts))

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
        self.counts["refined"] += len(keys)
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
        count = len(captions)
        one, two = self._text(references), self._text(captions)
        coarse = self.coarse.pairs(References.single(references), captions, "paired") if self.coarse else None
        out = self.gate.rest(coarse, count)
        # A pair of failed captions stays NaN, even if their texts are equal.
        same = (one == two) & ~np.isnan(out)
        out[same] = 1.0
        refined = self.gate.passes(coarse, count) & ~same
        keys, inverse = np.unique(self.keys(one[refined], two[refined]), return_inverse=True)
        self.counts["asked"] += count
        self.counts["passed"] += len(inverse)
        out[refined] = self.refine(keys)[inverse.reshape(-1)]
        return out

    def _text(self, rows: Rows) -> Rows:
        """Return the texts of corpus rows."""
        texts: Rows = self.text[self.positions(rows)]
        return texts


@dataclass(frozen=True, eq=False, repr=False)
class DryRunRelevance(BertStsRelevance):
    """Relevance that applies the gate and counts pairs. Every refined score is 0.

    `met`: list of (n,) int64; samples of the keys of each call.
    """

    met: list[Keys] = field(default_factory=list)

    @property
    def sample(self) -> Keys:
        """Keys of some pairs of texts that pass."""
        return np.concatenate(self.met) if self.met else np.empty(0, np.int64)

    def refine(self, keys: Keys, advance: Advance = ignore_progress) -> Scores:
        """Count D pairs of texts, keep some of their keys, and return zeros."""
        self.counts["refined"] += len(keys)
        self.met.append(keys[:: max(1, len(keys) // _SAMPLE)])
        return np.zeros(len(keys))


def log_cost(relevance: BertStsRelevance, pairs: int, sample: Keys, title: str) -> float:
    """Log the estimated cost of refining pairs.

    `pairs`: estimated number of pairs of texts to refine. `sample`: (S,) int64; keys of some of the pairs. `title`:
    title of the work that needs them. Returns float: estimated seconds.
    """
    limit = relevance.max_pairs
    if not pairs:
        return 0.0
    seconds = pairs * seconds_per_pair(relevance, sample)
    message = f"{title}: about {pairs:,} pairs to refine ({relevance.gate.describe()}), about {duration(seconds)}"
    if limit is not None and pairs > limit:
        todo = "Raise `max_pairs` or `threshold`, name another `gate`, or ask for fewer captions."
        raise UsageError(f"{message}; max_pairs is {limit:,}", todo=todo)
    relevance.runtime.progress.note(message)
    return seconds


def log_run_cost(relevance: BertStsRelevance, run: Callable[[Relevance, Work], None], title: str) -> None:
    """Count the pairs of `run` by running it with the gate alone, in a temporary folder, and log their cost."""
    counter = relevance.dry_run()
    with TemporaryDirectory(prefix="relabel-") as folder:
        work = Work(Path(folder))
        make_folder(work.folder / DONE)
        run(counter, work)
    log_cost(relevance, counter.counts["refined"], counter.sample, title)


def seconds_per_pair(relevance: BertStsRelevance, sample: Keys) -> float:
    """Time some pairs, drawn with a fixed seed, after a few to warm up the model."""
    keys = np.random.default_rng(0).permutation(sample)[:_PROBE]
    counts = dict(relevance.counts)
    relevance.refine(keys[:_WARM])
    started = time.perf_counter()
    relevance.refine(keys)
    # Timed pairs are no part of the artefact's counts.
    relevance.counts.update(counts)
    return (time.perf_counter() - started) / max(1, len(keys))
