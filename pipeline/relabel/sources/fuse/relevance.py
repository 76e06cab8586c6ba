"""Relevance of a fuse: an elementwise function of what its parts give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.finder import Finder, Search
from relabel.sources.fuse.features import Feature, Scorer, of_block, of_pairs, pooled
from relabel.sources.fuse.model import FuseModel, HeadName
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.workdir import Work

_CELLS = 1 << 21  # features held at once: 16 MiB
_PAIRS = 1 << 14  # pairs scored at once


@dataclass(frozen=True, eq=False)
class FuseRelevance(Relevance):
    """What a model makes of its parts' scores; `block` gives the bits of `pairs`.

    `refs` scores a set by the model's set head, or by its single head where the set is one caption; `paired` scores the
    first reference by the single head, `max` and `mean` pool its scores of every reference.

    Attributes
    ----------
    parts : mapping of str to Relevance
        By label, opened for the same rows.
    model : FuseModel
    threads : int
    gate : str or None
        The part that picks what is scored where neighbours are looked for.
    gate_top : int
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
        how = pooling or self.pooling
        out = np.empty(len(captions))
        for a in range(0, len(captions), _PAIRS):
            some = references.take(np.arange(a, min(a + _PAIRS, len(captions))))
            out[a : a + _PAIRS] = self._pairs(some, captions[a : a + _PAIRS], how)
        return out

    def _pairs(self, references: References, captions: Rows, how: Pooling) -> Scores:
        if how == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        elif how != "refs":
            each = np.repeat(captions, np.diff(references.indptr))
            single = self._pairs(References.single(references.rows), each, "paired")
            return pooled(single, references.indptr, how)
        out = np.empty(len(captions))
        for name, some in self._by_head(references):
            head = self.model.heads[name]
            features = of_pairs(self.parts, head.features, references.take(some), captions[some])
            out[some] = head.score(features, self.threads)
        return out

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self.block_scorer(captions)(references, pooling or self.pooling)

    @override
    def block_scorer(self, captions: Rows) -> Scorer:
        scorers = {label: part.block_scorer(captions) for label, part in self.parts.items()}
        return lambda references, pooling: self._score(scorers, references, len(captions), pooling)

    def _score(self, scorers: Mapping[str, Scorer], references: References, count: int, how: Pooling) -> Scores:
        """Score M sets against N = `count` candidates: (M, N) float64."""
        if how == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        elif how != "refs":
            single = self._score(scorers, References.single(references.rows), count, "paired")
            return pooled(single, references.indptr, how)
        out = np.empty((len(references), count))
        for name, some in self._by_head(references):
            head = self.model.heads[name]
            step = max(1, _CELLS // max(1, count * len(head.features)))
            for a in range(0, len(some), step):
                sets = some[a : a + step]
                values = of_block(scorers, head.features, references.take(sets), count)
                out[sets] = head.score(values, self.threads).reshape(len(sets), count)
        return out

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        head = self.model.heads["single"]
        scores = {f.part: self.parts[f.part].query(text, captions) for f in head.features}
        return head.score(np.stack([scores[f.part] for f in head.features], axis=1), self.threads)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """Every candidate is scored, or with a gate what the gate finds best.

        Raises
        ------
        UsageError
            If a part scores pair by pair and there is no gate.
        """
        from relabel.sources.fuse.search import fuse_finder

        return fuse_finder(self, search, pooling or self.pooling, runtime)

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
        """Say which sets each head scores, none twice."""
        one = np.diff(references.indptr) == 1
        named: tuple[tuple[HeadName, np.ndarray[tuple[int], np.dtype[np.bool_]]], ...] = (
            ("single", one),
            ("set", ~one),
        )
        for name, mask in named:
            if mask.any():
                yield name, np.flatnonzero(mask)
