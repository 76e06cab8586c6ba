"""CIDEr of captions of an encoding, from weighted sparse rows of n-grams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.threads import run_chunks
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.cider.export import write_features
from relabel.sources.cider.features import Features, Weighting, features_of_text, gauss_of
from relabel.sources.cider.ngrams import Vocabulary, number_ngrams
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import LookupArrays, Relevance, block_of_pairs
from relabel.store.workdir import Work

_FEW_SETS = 8  # fewer sets are scored pair by pair, because building an index would cost more


@dataclass(frozen=True, eq=False, repr=False)
class CiderRelevance(Relevance):
    """CIDEr-D or CIDEr of encoded captions, in 0..10.

    Poolings `set` and `mean` are equal, because CIDEr of a set is the mean over its captions.

    `features`: features of the encoded rows.
    `open_vocabulary`: reads the vocabulary; called for the first new text.
    `split`: splits a new text into words.
    `unseen_idf`: idf of n-grams that are not in any document: ln(documents).
    `sigma`: width of the length penalty, or None for plain CIDEr.
    """

    features: Features
    weighting: Weighting
    open_vocabulary: Callable[[], Vocabulary]
    split: Callable[[str], list[str]]
    unseen_idf: float
    sigma: float | None
    threads: int

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        pooling = pooling or self.pooling
        sets = self.set_positions(references, pooling)
        return self._score(self.features, self.weighting, sets, self.positions(captions), pooling)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        if len(references) < _FEW_SETS:
            return block_of_pairs(self, references, captions, pooling)
        from relabel.sources.cider.sets import score_sets

        pooling = pooling or self.pooling
        sets, positions = self.set_positions(references, pooling), self.positions(captions)
        return score_sets(sets, positions, pooling, self.features, self.weighting, self.threads)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        def score(sets: References, positions: NDArray[np.int64]) -> Scores:
            return self._score(self.features, self.weighting, sets, positions, "first")

        image = self.corpus.image[self.rows.start : self.rows.stop]
        sizes = write_features(image, self.features, self.weighting, score, work)
        return LookupArrays("features", "float64", self.failed, sizes)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Score N captions against one new text. N-grams that are not in the vocabulary have document frequency 0."""
        ngrams = number_ngrams([text], self.split, len(self.weighting.starts) - 1)
        refs = features_of_text(ngrams, self._vocabulary, self.weighting, self.unseen_idf)
        sets = References.single(np.zeros(len(captions), np.int32))
        # Extend the table of penalties, because the text may be longer than all captions.
        longest = max(len(self.weighting.gauss), ngrams.ids.shape[1])
        weighting = self.weighting._replace(gauss=gauss_of(self.sigma, longest))
        return self._score(refs, weighting, sets, self.positions(captions), "first")

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        from relabel.sources.cider.search import CiderFinder

        return CiderFinder(self, search, pooling or self.pooling, runtime)

    def _score(
        self, refs: Features, weighting: Weighting, sets: References, positions: NDArray[np.int64], pooling: Pooling
    ) -> Scores:
        """Score set p of rows of `refs` against the caption at ``positions[p]``."""
        from relabel.sources.cider.pairs import SetTable, code_of, score_pairs

        out = np.empty(len(positions))

        def work(lo: int, hi: int) -> None:
            chunk, candidates = sets.take(np.arange(lo, hi)), positions[lo:hi].astype(np.int32)
            left = chunk.indptr, chunk.rows, refs, SetTable.allocate(chunk, refs)
            score_pairs(*left, candidates, self.features, weighting, code_of(pooling), out[lo:hi])

        run_chunks(work, len(positions), self.threads, step=4096)
        return out

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self.open_vocabulary()
