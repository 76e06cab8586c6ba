"""F1 of candidates against reference sets, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import jit
from relabel.sources.scene_graphs.marks import NODE, clear_marks, mark, matches
from relabel.sources.scene_graphs.merge import clear_graph, merge
from relabel.sources.scene_graphs.structures import (
    ATTRIBUTES,
    I4,
    I8,
    NODES,
    RELATIONS,
    Graphs,
    Room,
    Rows,
    Words,
)

F8 = NDArray[np.float64]
TOGETHER, BEST, MEAN = range(3)
"""References merged into one graph; or one by one, the best or the mean."""


@jit
def f1(matched: int, candidate: int, reference: int) -> float:
    """F1 of `matched` of `candidate` tuples against `reference` tuples: the jar's operations, 0 where nothing matches.

    Several tuples of the candidate may match the same one of the references, which the jar counts each time.
    """
    if matched == 0 or reference == 0:
        return 0.0
    precision, recall = matched / candidate, matched / reference
    return 2.0 * (precision * recall) / (precision + recall)


@jit
def begin(captions: I4, rows: Rows, words: Words, room: Room) -> int:
    """Merge some captions into a graph, mark what it matches, and count its tuples."""
    merge(captions, rows, words, room)
    mark(words, room)
    return int(room.used[NODES] + room.used[ATTRIBUTES] + room.used[RELATIONS])


@jit
def end(room: Room) -> None:
    """Empty the room."""
    clear_marks(room)
    clear_graph(room)


@jit
def _score(set_: I4, how: int, rows: Rows, words: Words, graphs: Graphs, chosen: I4, room: Room, out: F8) -> None:
    """Score one reference set against N candidates: fill `out`, (N,)."""
    concepts, bits, la, lr = graphs.concepts, room.bits, room.limbs[0], room.limbs[1]
    out[:] = 0.0
    step = len(set_) if how == TOGETHER else 1
    for r in range(0, len(set_), step):
        reference = begin(set_[r : r + step], rows, words, room)
        for i in range(len(chosen)):
            lo, hi, matched = graphs.start[chosen[i]], graphs.start[chosen[i] + 1], 0
            for t in range(lo, hi):
                first, second, third = concepts[t, 0], concepts[t, 1], concepts[t, 2]
                if second < 0:
                    matched += int(bits[first, 0] & NODE)  # as `matches` does, without a call
                elif bits[first, 0] != 0:
                    matched += int(matches(first, second, third, bits, la, lr))
            if matched:
                score = f1(matched, hi - lo, reference)
                out[i] = max(out[i], score) if how == BEST else out[i] + score
        end(room)
    if how == MEAN:
        out /= len(set_)


@jit
def score_block(
    indptr: I8, sets: I4, how: int, rows: Rows, words: Words, graphs: Graphs, chosen: I4, room: Room, out: F8
) -> None:
    """Score M reference sets of places in `rows` against N candidates, places in `graphs`: fill `out`, (M, N)."""
    for m in range(len(indptr) - 1):
        _score(sets[indptr[m] : indptr[m + 1]], how, rows, words, graphs, chosen, room, out[m])


@jit
def score_pairs(
    indptr: I8, sets: I4, how: int, rows: Rows, words: Words, graphs: Graphs, chosen: I4, room: Room, out: F8
) -> None:
    """Score reference set p against candidate ``chosen[p]``: fill `out`, (P,).

    Equal sets that follow one another are merged once.
    """
    lo = 0
    while lo < len(chosen):
        set_ = sets[indptr[lo] : indptr[lo + 1]]
        hi = lo + 1
        while hi < len(chosen) and np.array_equal(sets[indptr[hi] : indptr[hi + 1]], set_):
            hi += 1
        _score(set_, how, rows, words, graphs, chosen[lo:hi], room, out[lo:hi])
        lo = hi


@jit
def count_pairs(
    indptr: I8, sets: I4, rows: Rows, words: Words, graphs: Graphs, chosen: I4, room: Room, out: I8
) -> None:
    """Count tuples of reference set p and candidate ``chosen[p]``.

    `out` is (P, 3, 3): objects, attributes, relations; matched, of the candidate, of the references.
    """
    out[:] = 0
    for p in range(len(chosen)):
        begin(sets[indptr[p] : indptr[p + 1]], rows, words, room)
        for t in range(graphs.start[chosen[p]], graphs.start[chosen[p] + 1]):
            first, second, third = graphs.concepts[t, 0], graphs.concepts[t, 1], graphs.concepts[t, 2]
            kind = int(second >= 0) + int(third >= 0)
            out[p, kind, 0] += int(matches(first, second, third, room.bits, room.limbs[0], room.limbs[1]))
            out[p, kind, 1] += 1
        out[p, 0, 2] = room.used[NODES]
        out[p, 1, 2] = room.used[ATTRIBUTES]
        out[p, 2, 2] = room.used[RELATIONS]
        end(room)
