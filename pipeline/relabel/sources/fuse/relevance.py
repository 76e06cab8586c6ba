"""Relevance of a fuse: an elementwise function of the scores of its parts; its neighbours and its lookup arrays.

Curves that may fall cannot be bounded part by part, so an exact search scores every pair. A gate serves larger corpora.

The lookup arrays of a fuse are those of its parts, with the prefixes `part0.`, `part1.` and so on.
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
    """Return the function that scores parts, by label: pairs of a set and a caption, or blocks."""

    def score(part: str, sets: References, captions: Rows, pooling: Pooling) -> Scores:
        return (parts[part].block if block else parts[part].pairs)(sets, captions, pooling)

    return score


@dataclass(frozen=True, eq=False, repr=False)
class FuseRelevance(Relevance):
    """Relevance that a model computes from its parts' scores.

    `parts`: by label, opened for the same rows.
    `gate`: part whose best candidates are scored in a search for neighbours.
    `gate_top`: number of these candidates.
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
        # The text is the only reference, so a part has one score under every pooling.
        return head.score(self.parts[part].query(text, captions) for part, _ in head.features)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """Search for neighbours among all candidates, or among the gate's best candidates."""
        how = pooling or self.pooling
        if self.gate is not None:
            return BlockFinder.behind(self, search, how, self.parts[self.gate], self.gate_top, runtime)
        if slow := [label for label, part in self.model.parts.items() if part.pair_by_pair]:
            message = f"{', '.join(slow)} scores pair by pair, which would take too long for all pairs"
            raise UsageError(message, todo="Set `gate` to a label whose best candidates are scored.")
        return BlockFinder(self, search, how, runtime, None)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        labels, parts = list(self.model.parts), []
        for i, label in enumerate(labels):
            if isinstance(self.parts[label], FuseRelevance):
                message = f"part {label} of this fuse is a fuse itself, and the reader does not nest lookups"
                raise UsageError(message, todo="Use precomputed batches: `relabel export batches`.")
            arrays = self.parts[label].write_lookup(work.prefixed(f"part{i}."))
            bounds = source_class(self.model.parts[label].source).spec.bounds
            part = {"label": label, "kind": arrays.kind, "sizes": arrays.sizes, "bounds": list(bounds)}
            parts.append(part | arrays.params)
        heads = {
            name: {"curves": [[labels.index(f.part), f.pooling, x, y] for f, x, y in head.curves], "cap": head.cap}
            for name, head in self.model.heads.items()
        }
        return LookupArrays("others", "float64", self.failed, params={"fuse": {"parts": parts, "heads": heads}})
