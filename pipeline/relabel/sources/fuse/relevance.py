"""Relevance of a fuse: an elementwise function of the scores of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.finder import Finder, Search
from relabel.sources.fuse.features import Feature, Scorer, block_features, pair_features, pool_scores
from relabel.sources.fuse.model import FuseModel, HeadName
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.workdir import Work

_CELLS = 1 << 21  # features held at a time: 16 MiB
_PAIRS = 1 << 14  # pairs scored at a time


@dataclass(frozen=True, eq=False, repr=False)
class FuseRelevance(Relevance):
    """Relevance that a model computes from its parts' scores; `block` and `pairs` give the same bits.

    `refs` scores a set by the model's set head, or by its single head if the set is one caption. `paired` scores the
    first reference by the single head. `max` and `mean` pool the single head's scores of all references. `Fuse` shows
    an example.

    Attributes
    ----------
    parts : mapping of str to Relevance
        By label, opened for the same rows.
    model : FuseModel
    threads : int
    gate : str or None
        Part whose best candidates are scored in a search for neighbours.
    gate_top : int
        Number of these candidates.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    parts: Mapping[str, Relevance]
    model: FuseModel
    threads: int = 1
    gate: str | None = None
    gate_top: int = 1000
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32))

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        mode = pooling or self.pooling
        out = np.empty(len(captions))
        for a in range(0, len(captions), _PAIRS):
            sets = references.take(np.arange(a, min(a + _PAIRS, len(captions))))
            out[a : a + _PAIRS] = self._pairs(sets, captions[a : a + _PAIRS], mode)
        return out

    def _pairs(self, references: References, captions: Rows, mode: Pooling) -> Scores:
        """Score P pairs in one piece."""
        if mode == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        elif mode != "refs":
            each = np.repeat(captions, np.diff(references.indptr))
            single = self._pairs(References.single(references.rows), each, "paired")
            return pool_scores(single, references.indptr, mode)
        out = np.empty(len(captions))
        for name, pairs in self._by_head(references):
            head = self.model.heads[name]
            features = pair_features(self.parts, head.features, references.take(pairs), captions[pairs])
            out[pairs] = head.score(features, self.threads)
        return out

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self.block_scorer(captions)(references, pooling or self.pooling)

    @override
    def block_scorer(self, captions: Rows) -> Scorer:
        scorers = {label: part.block_scorer(captions) for label, part in self.parts.items()}
        return lambda references, pooling: self._score(scorers, references, len(captions), pooling)

    def _score(self, scorers: Mapping[str, Scorer], references: References, count: int, mode: Pooling) -> Scores:
        """Score M sets against N = `count` candidates, (M, N) float64."""
        if mode == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        elif mode != "refs":
            single = self._score(scorers, References.single(references.rows), count, "paired")
            return pool_scores(single, references.indptr, mode)
        out = np.empty((len(references), count))
        for name, rows in self._by_head(references):
            head = self.model.heads[name]
            # As many sets at a time as have `_CELLS` features, and at least one.
            step = max(1, _CELLS // max(1, count * len(head.features)))
            for a in range(0, len(rows), step):
                sets = rows[a : a + step]
                values = block_features(scorers, head.features, references.take(sets), count)
                out[sets] = head.score(values, self.threads).reshape(len(sets), count)
        return out

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        head = self.model.heads["single"]
        # The text is the only reference, so a part has one score under every pooling.
        scores = {f.part: self.parts[f.part].query(text, captions) for f in head.features}
        return head.score(np.stack([scores[f.part] for f in head.features], axis=1), self.threads)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """Search for neighbours among all candidates, or among the gate's best candidates.

        Raises
        ------
        UsageError
            If a part scores pair by pair and there is no gate.
        """
        from relabel.sources.fuse.search import make_finder

        return make_finder(self, search, pooling or self.pooling, runtime)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        from relabel.sources.fuse.export import write_others

        return LookupArrays("others", "float64", self.failed, params={"fuse": write_others(self, work)})

    @override
    def close(self) -> None:
        for part in self.parts.values():
            part.close()

    @property
    def features(self) -> tuple[Feature, ...]:
        """All features of all heads."""
        return tuple(f for head in self.model.heads.values() for f in head.features)

    @staticmethod
    def _by_head(references: References) -> Iterator[tuple[HeadName, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
        """Yield each head with the sets that it scores: sets of one caption for the single head, else the set head."""
        # The single head was fitted to single references, the set head to sets of several.
        one = np.diff(references.indptr) == 1
        named: tuple[tuple[HeadName, np.ndarray[tuple[int], np.dtype[np.bool_]]], ...] = (
            ("single", one),
            ("set", ~one),
        )
        for name, mask in named:
            if mask.any():
                yield name, np.flatnonzero(mask)
