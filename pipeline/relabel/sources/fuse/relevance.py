"""Relevance of a fuse as an elementwise function of the scores of its parts, its neighbours and its lookup arrays.

An exact search scores every pair, because curves that may decrease cannot be bounded part by part. Use a gate for large
corpora. The lookup arrays of a fuse are those of its parts, with the prefixes `part0.`, `part1.` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources import source_class
from relabel.sources.finder import BlockFinder, Finder, Search
from relabel.sources.fuse.model import FuseModel
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.workdir import Work
from relabel_train.scoring.fuse import PartScores, score_sets


def part_scores(parts: Mapping[str, Relevance], block: bool) -> PartScores[References]:
    """Return a function that scores a part by label: pairs of a set and a caption, or blocks."""

    def score(part: str, sets: References, captions: Rows, pooling: Pooling) -> Scores:
        return (parts[part].block if block else parts[part].pairs)(sets, captions, pooling)

    return score


@dataclass(frozen=True, eq=False, repr=False)
class FuseRelevance(Relevance):
    """Relevance computed by a model from the scores of its parts.

    `parts`: relevance of each part and of the gate by label, for the same rows.
    `gate`: label that selects candidates for neighbour search.
    `gate_top`: number of candidates.
    """

    parts: Mapping[str, Relevance]
    model: FuseModel
    gate: str | None = None
    gate_top: int = 1000

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._score(references, captions, pooling or self.pooling, block=False)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._score(references, captions, pooling or self.pooling, block=True)

    def _score(self, sets: References, captions: Rows, pooling: Pooling, block: bool) -> Scores:
        """Score each set against its caption or, in a block, against all captions."""
        return score_sets(self.model.heads, part_scores(self.parts, block), sets, captions, pooling, block)

    @property
    @override
    def block_error(self) -> float:
        steepness = max(head.steepness for head in self.model.heads.values())
        return steepness * max(part.block_error for part in self.parts.values())

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        head = self.model.heads["single"]
        # With one reference, all poolings give the same score.
        return head.score(self.parts[part].query(text, captions) for part, _ in head.features)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """Return a finder over all candidates, or over the best candidates of the gate."""
        pooling = pooling or self.pooling
        if self.gate is not None:
            return BlockFinder.behind(self, search, pooling, self.parts[self.gate], self.gate_top, runtime)
        if slow := [label for label, part in self.model.parts.items() if part.pair_by_pair]:
            message = f"{', '.join(slow)} scores pair by pair; scoring all pairs would take too long"
            raise UsageError(message, hint="Set `gate` to a label that selects candidates.")
        return BlockFinder(self, search, pooling, runtime, None)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        labels, parts = list(self.model.parts), []
        for i, label in enumerate(labels):
            if isinstance(self.parts[label], FuseRelevance):
                message = f"part {label} of this fuse is a fuse itself, but lookups do not support nesting"
                raise UsageError(message, hint="Use precomputed batches: `relabel export batches`.")
            arrays = self.parts[label].write_lookup(work.prefixed(f"part{i}."))
            bounds = source_class(self.model.parts[label].source).spec.bounds
            part = {"label": label, "kind": arrays.kind, "sizes": arrays.sizes, "bounds": list(bounds)}
            parts.append(part | arrays.params)
        heads = {
            name: {"curves": [[labels.index(f.part), f.pooling, x, y] for f, x, y in head.curves], "cap": head.cap}
            for name, head in self.model.heads.items()
        }
        return LookupArrays("others", "float64", self.failed, params={"fuse": {"parts": parts, "heads": heads}})
