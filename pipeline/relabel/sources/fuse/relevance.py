"""Relevance of a fuse: an elementwise function of the scores of its parts; its neighbours and its lookup arrays.

A fuse with trees cannot be bounded part by part, so an exact search scores every pair. With 150 trees this takes about
3 microseconds per pair and thread, half an hour for the 25,000 captions of a split. A gate serves larger corpora.

The lookup arrays of a fuse are those of its parts, with the prefixes `part0.`, `part1.` and so on, and its two heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Advance, Runtime, ignore_progress
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources import source_class
from relabel.sources.finder import Finder, Search
from relabel.sources.fuse.features import Feature, Scorer, block_features, pair_features, pool_scores
from relabel.sources.fuse.model import FuseModel, HeadName
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.arrays import write_array
from relabel.store.workdir import Step, Work

_CELLS = 1 << 21  # features held at a time: 16 MiB
_PAIRS = 1 << 14  # pairs scored at a time
_QUERIES = 64  # largest number of queries at a time


@dataclass(frozen=True, eq=False, repr=False)
class FuseRelevance(Relevance):
    """Relevance that a model computes from its parts' scores; `block` and `pairs` give the same bits.

    `refs` scores a set by the model's set head, or by its single head if the set is one caption. `paired` scores the
    first reference by the single head. `max` and `mean` pool the single head's scores of all references. `Fuse` shows
    an example.

    `parts`: by label, opened for the same rows.
    `gate`: part whose best candidates are scored in a search for neighbours.
    `gate_top`: number of these candidates.
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
            references = references.first()
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
            references = references.first()
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
        """Search for neighbours among all candidates, or among the gate's best candidates."""
        return make_finder(self, search, pooling or self.pooling, runtime)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
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


def make_finder(relevance: FuseRelevance, search: Search, pooling: Pooling, runtime: Runtime) -> Finder:
    """Return the finder for a fuse's parameters; raise as `FuseRelevance.finder` does."""
    if relevance.gate is not None:
        # The gate must find at least the k neighbours that are returned.
        wider = replace(search, k=max(search.k, relevance.gate_top))
        return GatedFinder(relevance, search, pooling, relevance.parts[relevance.gate].finder(wider, None, runtime))
    if slow := [label for label, part in relevance.model.parts.items() if part.pair_by_pair]:
        message = f"{', '.join(slow)} scores pair by pair: scoring every pair to find neighbours would take too long"
        raise UsageError(message, todo="Set `gate` to a label whose best candidates are scored.")
    return ExhaustiveFinder(relevance, search, pooling, runtime)


@dataclass(frozen=True, eq=False)
class ExhaustiveFinder(Finder):
    """Exact neighbours: every query is scored against all candidates."""

    relevance: FuseRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime

    @override
    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        count, width = len(self.search.candidates), self.search.width
        rows, scores = np.empty((len(queries), width), np.int32), np.empty((len(queries), width))
        # The block of scores takes at most a quarter of the memory.
        fit = self.runtime.memory // 4 // max(1, 8 * count)
        step = int(max(1, min(_QUERIES, fit)))
        for a in range(0, len(queries) if width else 0, step):
            batch = np.arange(queries.start + a, min(queries.start + a + step, queries.stop))
            block = self._scorer(self.search.queries.take(batch), self.pooling)
            for i, query in enumerate(batch.tolist()):
                best = select_best(block[i], self.search.candidates, int(self.search.exclude[query]), width)
                rows[a + i], scores[a + i] = best
            advance(len(batch))
        return rows, scores

    @cached_property
    def _scorer(self) -> Scorer:
        """Scorer against all candidates, prepared once for all queries."""
        return self.relevance.block_scorer(self.search.candidates)


@dataclass(frozen=True, eq=False)
class GatedFinder(Finder):
    """Best candidates by a fuse among the best candidates by its gate; a candidate that the gate misses is not found.

    `coarse`: finder of the gate, with at least as many neighbours.
    """

    relevance: FuseRelevance
    search: Search
    pooling: Pooling
    coarse: Finder

    @override
    def build(self, work: Work) -> Step | None:
        return self.coarse.build(work)

    @override
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        width = self.search.width
        rows, scores = np.empty((len(queries), width), np.int32), np.empty((len(queries), width))
        for a in range(0, len(queries) if width else 0, _QUERIES):
            batch = range(queries.start + a, min(queries.start + a + _QUERIES, queries.stop))
            # Rows are sorted, because `select_best` breaks ties by their order. Queries count once they are scored.
            passed = np.sort(self.coarse.find(work, batch, ignore_progress)[0], axis=1)
            each = np.repeat(np.arange(batch.start, batch.stop), passed.shape[1])
            fine = self.relevance.pairs(self.search.queries.take(each), passed.reshape(-1), self.pooling)
            # The gate has excluded the query itself already.
            for i, values in enumerate(fine.reshape(passed.shape)):
                rows[a + i], scores[a + i] = select_best(values, passed[i], -1, width)
            advance(len(batch))
        return rows, scores


def select_best(scores: Scores, candidates: Rows, exclude: int, k: int) -> tuple[Rows, Scores]:
    """Select k candidates by (-score, row), with NaN last and without `exclude`.

    `scores`: (C,) float64. `candidates`: (C,) int32; rows, ascending. `exclude`: a row, or -1. `k`: at least 1, and at
    most the number of candidates without `exclude`. Returns `rows, scores`, (k,) int32 and float64.
    """
    # `last` is the k-th largest score. All candidates above it are selected, and of those equal to it the first rows.
    positions = np.flatnonzero(candidates != exclude)
    keys = np.where(np.isnan(scores), -np.inf, scores)[positions]
    last = np.partition(keys, len(keys) - k)[len(keys) - k]
    above, level = np.flatnonzero(keys > last), np.flatnonzero(keys == last)
    chosen = positions[np.concatenate([above[np.argsort(-keys[above], kind="stable")], level[: k - len(above)]])]
    return candidates[chosen], scores[chosen]


def write_others(relevance: FuseRelevance, work: Work) -> dict[str, Any]:
    """Write the arrays of the kind `others` (see `relabel_train.lookup.fuse`).

    Returns dict: description of parts and heads for `lookup.json`.
    """
    labels = list(relevance.model.parts)
    parts = []
    for i, label in enumerate(labels):
        arrays = _write_part(label, relevance.parts[label], _PrefixedWork(work, f"part{i}."))
        bounds = source_class(relevance.model.parts[label].source).spec.bounds
        parts.append({"label": label, "kind": arrays.kind, "sizes": arrays.sizes, "bounds": list(bounds)})
    _write_heads(relevance.model, work)
    heads = {
        name: [[labels.index(feature.part), feature.pooling] for feature in head.features]
        for name, head in relevance.model.heads.items()
    }
    return {"parts": parts, "heads": heads}


def _write_part(label: str, part: Relevance, work: Work) -> LookupArrays:
    """Write the arrays of one part."""
    message = f"part {label} of this fuse has no lookup"
    if isinstance(part, FuseRelevance):  # the reader does not nest lookups
        raise UsageError(f"{message}: it is a fuse itself", todo="Use a batch plan: `relabel export plan`.")
    try:
        return part.write_lookup(work)
    except UsageError as error:
        raise UsageError(f"{message}: {error.problem}", todo="Use a batch plan: `relabel export plan`.") from error


def _write_heads(model: FuseModel, work: Work) -> None:
    """Write the weights, trees and plateau of both heads."""
    from relabel_train.lookup.fuse import LEAVES

    for name, head in model.heads.items():
        # The reader keeps the leaves of a tree in the bits of one byte.
        leaves = np.add.reduceat(head.trees.nodes[:, 0] < 0, head.trees.roots) if len(head.trees.roots) else [0]
        if (most := int(np.max(leaves))) > LEAVES:
            message = f"a tree of this fuse has {most} leaves, but a lookup reads at most {LEAVES}"
            raise UsageError(message, todo=f"Fit it again with --set tune.fuse.leaves={LEAVES}, or use a batch plan.")
        write_array(work, f"{name}.weights", np.concatenate([[head.intercept], head.weights]))
        write_array(work, f"{name}.plateau", np.array(head.plateau))
        for array, values in head.trees._asdict().items():
            write_array(work, f"{name}.{array}", values)


class _PrefixedWork(Work):
    """Work folder whose files are written with a prefix to their names."""

    def __init__(self, work: Work, prefix: str) -> None:
        super().__init__(work.folder, work.facts, work.runtime)
        self._work, self._prefix = work, prefix

    @override
    def file(self, name: str, write: Callable[[Path], object]) -> None:
        self._work.file(self._prefix + name, write)
