"""SPICE of any captions of an encoding: pairs, blocks, nearest captions and new texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import Corpus, References
from relabel.neighbours.base import Search
from relabel.runtime import Runtime
from relabel.sources.base import Pooling, Relevance, Rows, Scores
from relabel.sources.ngrams.threads import share
from relabel.sources.scene_graphs.build import Scenes, sizes_of
from relabel.sources.scene_graphs.finder import SceneGraphFinder
from relabel.sources.scene_graphs.scoring import BEST, MEAN, TOGETHER, count_pairs, score_block, score_pairs
from relabel.sources.scene_graphs.structures import I8, Room, Words
from relabel.sources.scene_graphs.structures import Rows as TupleRows

_USUAL = np.array([128, 64, 64, 4096])  # see `Room.of`: holds the five captions of nearly any image
NewText = Callable[[str, Scenes], tuple[TupleRows, Words]]


@dataclass(frozen=True, eq=False)
class SceneGraphRelevance(Relevance):
    """SPICE of encoded captions: F1 of the caption's tuples, in 0..1.

    `refs` merges all references into one graph, which is SPICE; `max` and `mean` take them one by one. Where the
    references or the caption have no tuples, relevance is 0, as the jar has it.

    Attributes
    ----------
    scenes : Scenes
        The encoded rows.
    new_text : callable
        Parses a new text.
    threads : int
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    scenes: Scenes
    new_text: NewText
    threads: int
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32))

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.pairs; the same bits as `block`. Pairs of one reference set cost little more than one."""
        pooling = pooling or self.pooling
        sets, chosen, how = self.places(references, pooling), self.at(captions), self.how(pooling)
        order = np.argsort(sets.rows[sets.indptr[:-1]], kind="stable")  # equal sets next to each other
        sets, ordered, most = sets.take(order), chosen[order], self.largest(sets, how)
        found, out = np.empty(len(chosen)), np.empty(len(chosen))

        def work(lo: int, hi: int) -> None:
            indptr, scenes = sets.indptr[lo : hi + 1], self.scenes
            rows, words, graphs = scenes.rows, scenes.words, scenes.graphs
            with self.room(most) as room:
                score_pairs(indptr, sets.rows, how, rows, words, graphs, ordered[lo:hi], room, found[lo:hi])

        share(work, len(chosen), self.threads, step=16384)
        found[self._broken_sets(sets) | self.broken[ordered]] = np.nan
        out[order] = found
        return out

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.block."""
        pooling = pooling or self.pooling
        sets, chosen, how = self.places(references, pooling), self.at(captions), self.how(pooling)
        out, most = np.empty((len(sets), len(chosen))), self.largest(sets, how)

        def work(lo: int, hi: int) -> None:
            indptr, scenes = sets.indptr[lo : hi + 1], self.scenes
            rows, words, graphs = scenes.rows, scenes.words, scenes.graphs
            with self.room(most) as room:
                score_block(indptr, sets.rows, how, rows, words, graphs, chosen, room, out[lo:hi])

        share(work, len(sets), self.threads, step=256)
        if len(self.failed):
            out[self._broken_sets(sets)] = np.nan
            out[:, self.broken[chosen]] = np.nan
        return out

    def counts(self, references: References, captions: Rows) -> I8:
        """Count tuples of P pairs, the references of each merged.

        Returns
        -------
        (P, 3, 3) int64
            Objects, attributes, relations; how many match, how many the caption has, how many the references have. The
            jar's own F1 of objects, attributes or relations is NaN where the references have none; see `f1`.
        """
        sets, chosen = self.places(references, "refs"), self.at(captions)
        out, scenes = np.empty((len(chosen), 3, 3), np.int64), self.scenes
        with self.room(self.largest(sets, TOGETHER)) as room:
            count_pairs(sets.indptr, sets.rows, scenes.rows, scenes.words, scenes.graphs, chosen, room, out)
        return out

    def query(self, text: str, captions: Rows) -> Scores:
        """See Relevance.query. The text is parsed, which takes seconds and needs SPICE's parser.

        Raises
        ------
        MissingError
            Without Java, CoreNLP or pycocoevalcap.
        """
        rows, words = self.new_text(text, self.scenes)
        chosen, out = self.at(captions), np.empty((1, len(captions)))
        room = Room.of(words, self.scenes.concepts, sizes_of(rows, words)[0])
        graphs, sets = self.scenes.graphs, References.single(np.zeros(1, np.int32))
        score_block(sets.indptr, sets.rows, TOGETHER, rows, words, graphs, chosen, room, out)
        out[:, self.broken[chosen]] = np.nan
        found: Scores = out[0]
        return found

    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> SceneGraphFinder:
        """See Relevance.finder."""
        return SceneGraphFinder(self, search, pooling or self.pooling, runtime)

    def places(self, references: References, pooling: Pooling) -> References:
        """Reference sets as places among the encoded rows; `paired` keeps the first caption of each."""
        sets = References.single(references.rows[references.indptr[:-1]]) if pooling == "paired" else references
        return References(sets.indptr, self.at(sets.rows))

    def at(self, captions: Rows) -> Rows:
        """Places of corpus rows among the encoded ones."""
        places = np.asarray(captions, np.int64) - self.rows.start
        if len(places) and not 0 <= places.min() <= places.max() < len(self.rows):
            raise IndexError(f"caption rows outside the encoded {self.rows}")
        return places.astype(np.int32)

    def how(self, pooling: Pooling) -> int:
        """Say how the kernels take references."""
        found: dict[Pooling, int] = {"max": BEST, "mean": MEAN}
        return found.get(pooling, TOGETHER)

    def largest(self, sets: References, how: int) -> I8:
        """Bound the graphs of some sets: see `Room.of`."""
        size = self.scenes.size[sets.rows]
        if how == TOGETHER and len(sets):
            size = np.asarray(np.add.reduceat(size, sets.indptr[:-1], axis=0), np.int64)
        return np.asarray(size.max(axis=0, initial=1), np.int64)

    @contextmanager
    def room(self, most: I8) -> Iterator[Room]:
        """Make room for graphs that are no larger, or take what another call has left: kernels leave it empty.

        New memory costs a small block more than its scores.
        """
        try:
            room = self._spare.pop()
        except IndexError:
            room = None
        if room is None or not room.holds(most):
            room = Room.of(self.scenes.words, self.scenes.concepts, np.maximum(most, _USUAL))
        yield room
        self._spare.append(room)  # not after an interrupt

    @cached_property
    def _spare(self) -> list[Room]:
        return []

    @cached_property
    def broken(self) -> NDArray[np.bool_]:
        """Say of each encoded row whether it failed: (len(rows),) bool."""
        out = np.zeros(len(self.rows), np.bool_)
        out[self.at(self.failed)] = True
        return out

    def _broken_sets(self, sets: References) -> NDArray[np.bool_]:
        if not len(sets):
            return np.zeros(0, np.bool_)
        return np.asarray(np.logical_or.reduceat(self.broken[sets.rows], sets.indptr[:-1]))
