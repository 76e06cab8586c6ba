"""Relevance of a fuse: an elementwise function of the scores of its parts; its neighbours and its lookup arrays.

Curves that may fall cannot be bounded part by part, so an exact search scores every pair. A gate serves larger corpora.

The lookup arrays of a fuse are those of its parts, with the prefixes `part0.`, `part1.` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Advance, Runtime, ignore_progress
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources import source_class
from relabel.sources.finder import Finder, Search
from relabel.sources.fuse.model import Feature, FuseModel
from relabel.sources.relevance import LookupArrays, Relevance, pool
from relabel.store.workdir import Step, Work

_CELLS = 1 << 21  # scores of single references held at a time: 16 MiB
_QUERIES = 64  # largest number of queries at a time


def compute_features(
    parts: Mapping[str, Relevance], features: Sequence[Feature], sets: References, captions: Rows, block: bool
) -> Iterator[Scores]:
    """Yield each feature of M sets and a caption each, (M,) float64; of a block with N captions, (M, N)."""
    # Several poolings share the scores of single references, for each of which a pair repeats the caption of its set.
    each = captions if block else np.repeat(captions, np.diff(sets.indptr))
    singles: dict[str, Scores] = {}
    for part, pooling in features:
        score = parts[part].block if block else parts[part].pairs
        if pooling == "set":
            yield score(sets, captions, "set")
            continue
        if part not in singles:
            singles[part] = score(References.single(sets.rows), each, "first")
        yield pool(singles[part], sets.indptr, pooling)


@dataclass(frozen=True, eq=False, repr=False)
class FuseRelevance(Relevance):
    """Relevance that a model computes from its parts' scores.

    `set` scores a set by the model's set head, or by its single head if the set is one caption. `first` scores the
    first reference by the single head. `max` and `mean` pool the single head's scores of all references.

    `parts`: by label, opened for the same rows.
    `gate`: part whose best candidates are scored in a search for neighbours.
    `gate_top`: number of these candidates.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    parts: Mapping[str, Relevance]
    model: FuseModel
    gate: str | None = None
    gate_top: int = 1000
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32))

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._score(references, captions, pooling or self.pooling, block=False)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._score(references, captions, pooling or self.pooling, block=True)

    def _score(self, sets: References, captions: Rows, pooling: Pooling, block: bool) -> Scores:
        """Score each set against its caption or, in a block, against all captions."""
        if pooling in ("max", "mean"):
            each = captions if block else np.repeat(captions, np.diff(sets.indptr))
            return pool(self._score(References.single(sets.rows), each, "first", block), sets.indptr, pooling)
        sets = sets.first() if pooling == "first" else sets
        sizes, width = np.diff(sets.indptr), len(captions) if block else 1
        out = np.empty((len(sets), width) if block else len(sets))
        # As many sets at a time as have `_CELLS` scores of single references, and at least one.
        step = max(1, _CELLS // max(1, width * int(sizes.max(initial=1))))
        # The single head was fitted to single references, the set head to sets of several.
        heads = self.model.heads
        for head, chosen in (heads["single"], np.flatnonzero(sizes == 1)), (heads["set"], np.flatnonzero(sizes > 1)):
            for a in range(0, len(chosen), step):
                some = chosen[a : a + step]
                own = captions if block else captions[some]
                out[some] = head.score(compute_features(self.parts, head.features, sets.take(some), own, block))
        return out

    @property
    @override
    def block_error(self) -> float:
        steepness = max(head.steepness for head in self.model.heads.values())
        return steepness * max(part.block_error for part in self.parts.values())

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        head = self.model.heads["single"]
        # The text is the only reference, so a part has one score under every pooling.
        return head.score(self.parts[part].query(text, captions) for part, _ in head.features)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """Search for neighbours among all candidates, or among the gate's best candidates."""
        gate = None
        if self.gate is not None:
            # The gate must find at least the k neighbours that are returned.
            wider = replace(search, k=max(search.k, self.gate_top))
            gate = self.parts[self.gate].finder(wider, None, runtime)
        elif slow := [label for label, part in self.model.parts.items() if part.pair_by_pair]:
            message = f"{', '.join(slow)} scores pair by pair, which would take too long for all pairs"
            raise UsageError(message, todo="Set `gate` to a label whose best candidates are scored.")
        return FuseFinder(self, search, pooling or self.pooling, runtime, gate)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        labels, parts = list(self.model.parts), []
        for i, label in enumerate(labels):
            if isinstance(self.parts[label], FuseRelevance):
                message = f"part {label} of this fuse is a fuse itself, and the reader does not nest lookups"
                raise UsageError(message, todo="Use precomputed batches: `relabel export batches`.")
            arrays = self.parts[label].write_lookup(_PrefixedWork(work.folder, work.metadata, prefix=f"part{i}."))
            bounds = source_class(self.model.parts[label].source).spec.bounds
            parts.append({"label": label, "kind": arrays.kind, "sizes": arrays.sizes, "bounds": list(bounds)})
        heads = {
            name: {"curves": [[labels.index(f.part), f.pooling, x, y] for f, x, y in head.curves], "cap": head.cap}
            for name, head in self.model.heads.items()
        }
        return LookupArrays("others", "float64", self.failed, params={"fuse": {"parts": parts, "heads": heads}})

    @override
    def close(self) -> None:
        for part in self.parts.values():
            part.close()


@dataclass(frozen=True, eq=False)
class FuseFinder(Finder):
    """Best candidates among all, which are exact neighbours, or among the best candidates of a gate.

    `gate`: finder of the gate, with at least as many neighbours.
    """

    relevance: FuseRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime
    gate: Finder | None

    @override
    def build(self, work: Work) -> Step | None:
        return None if self.gate is None else self.gate.build(work)

    @override
    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        width, every = self.search.width, self.search.candidates
        rows, scores = np.empty((len(queries), width), np.int32), np.empty((len(queries), width))
        # The block of scores takes at most a quarter of the memory.
        step = max(1, min(_QUERIES, self.runtime.memory // 4 // max(1, 8 * len(every))))
        for a in range(0, len(queries) if width else 0, step):
            batch = range(queries.start + a, min(queries.start + a + step, queries.stop))
            if self.gate is None:
                candidates = self._within_reach(batch)
            else:
                # Queries count once they are scored.
                candidates = list(np.sort(self.gate.find(work, batch, ignore_progress)[0], axis=1))
            sizes = [len(some) for some in candidates]
            sets = self.search.queries.take(np.repeat(np.arange(batch.start, batch.stop), sizes))
            found = self.relevance.pairs(sets, np.concatenate(candidates), self.pooling)
            for i, one in enumerate(np.split(found, np.cumsum(sizes)[:-1])):
                # Ties by row, and NaN last.
                best = np.argsort(-one, kind="stable")[:width]
                rows[a + i], scores[a + i] = candidates[i][best], one[best]
            advance(len(batch))
        return rows, scores

    def _within_reach(self, queries: range) -> list[Rows]:
        """Return the candidates of each query that can be among its best, by the block of all candidates; ascending."""
        every, sets = self.search.candidates, self.search.queries.take(np.arange(queries.start, queries.stop))
        block = self.relevance.block(sets, every, self.pooling)
        block[np.isnan(block)] = -np.inf
        itself = self.search.exclude[queries.start : queries.stop, None] == every
        block[itself] = -np.inf
        best = np.partition(block, len(every) - self.search.width, axis=1)[:, len(every) - self.search.width]
        # A candidate and the worst of the best may each be off by the error of a block.
        floor = best - 2 * self.relevance.block_error
        return [every[(row >= least) & ~left_out] for row, least, left_out in zip(block, floor, itself, strict=True)]


@dataclass
class _PrefixedWork(Work):
    """Work folder whose files are written with a prefix to their names."""

    prefix: str = ""

    @override
    def file(self, name: str, write: Callable[[Path], object]) -> None:
        super().file(self.prefix + name, write)
