"""F1 of candidates against reference sets, compiled.

A candidate's tuple matches if it is similar to a tuple of the references in every position. `mark` sets a bit of every
concept for each attribute and relation of the reference graph that the concept can be part of. A match is then an AND
of two or three 64-bit words per limb, independent of the number of synonyms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.sources.spice.scene_graph import (
    ATTRIBUTES,
    I4,
    I8,
    LIMB,
    NODES,
    RELATED,
    RELATIONS,
    SEEN,
    TOUCHED,
    U8,
    Captions,
    ReferenceGraph,
    Words,
    clear_graph,
    merge,
)

F8 = NDArray[np.float64]
MERGED, BEST, MEAN = range(3)
"""Modes of combining references: merged into one graph, or scored separately with the maximum or the mean."""
NODE, _TOUCHED, _ONE = np.uint64(1), np.uint64(2), np.uint64(1)


@jit
def mark(words: Words, graph: ReferenceGraph) -> None:
    """Mark every concept that matches a part of the graph: fill `graph.bits`, and list the concepts in `touched`."""
    la, lr, bits, of_nodes = graph.limbs[0], graph.limbs[1], graph.bits, graph.node_bits
    touched, count = graph.touched, 0
    # Set bits per node for its attributes, for the relations of which it is the subject, and for those it is object of.
    for n in range(graph.used[NODES]):
        for k in range(la + 2 * lr):
            of_nodes[n, k] = 0
    for e in range(graph.used[ATTRIBUTES] + graph.used[RELATIONS]):
        limb, bit = graph.number[e] // LIMB, _ONE << np.uint64(graph.number[e] % LIMB)
        if graph.target[e] < 0:
            of_nodes[graph.source[e], limb] |= bit
        else:
            of_nodes[graph.source[e], la + limb] |= bit
            of_nodes[graph.target[e], la + lr + limb] |= bit
    # A concept similar to a word of a node can match the node, so it gets the node's bits. The bits of several similar
    # nodes are combined by OR.
    for i in range(graph.used[SEEN]):
        word = graph.seen[i]
        node = graph.node_of[word]
        for s in range(words.near_start[word], words.near_start[word + 1]):
            c = words.near[s]
            if bits[c, 0] == 0:  # first mark of this concept: list it, to clear only marked concepts
                touched[count] = c
                count += 1
            bits[c, 0] |= NODE | _TOUCHED
            for k in range(la):
                bits[c, 1 + k] |= of_nodes[node, k]
            for k in range(2 * lr):
                bits[c, 1 + 2 * la + k] |= of_nodes[node, la + k]
    # A concept similar to a word of an attribute or relation gets its bit. These columns are separate from those of the
    # nodes, because a match tests both.
    for m in range(graph.used[RELATED]):
        word, e = graph.member[m], graph.member_of[m]
        column = 1 + la if graph.target[e] < 0 else 1 + 2 * la + 2 * lr
        column += graph.number[e] // LIMB
        bit = _ONE << np.uint64(graph.number[e] % LIMB)
        for s in range(words.near_start[word], words.near_start[word + 1]):
            c = words.near[s]
            if bits[c, 0] == 0:
                touched[count] = c
                count += 1
            bits[c, 0] |= _TOUCHED
            bits[c, column] |= bit
    graph.used[TOUCHED] = count


@jit
def matches(first: int, second: int, third: int, bits: U8, la: int, lr: int) -> bool:
    """Return whether a candidate's tuple of concepts (see Graphs) matches a tuple of the references.

    `bits`, `la` and `lr` are the bits and limbs of the graph. Passing the whole graph, a tuple of 21 arrays, would cost
    more than the work.
    """
    # Fast path: few concepts of a candidate have bits.
    if bits[first, 0] == 0:
        return False
    if second < 0:  # an object
        return bool(bits[first, 0] & NODE != 0)
    if third < 0:  # a common bit is an attribute of `first` that is similar to `second`
        for k in range(1, 1 + la):  # noqa: SIM110 - numba does not support any(...)
            if bits[first, k] & bits[second, k + la] != 0:
                return True
        return False
    # A common bit is a relation with a similar subject, object and predicate.
    for k in range(1 + 2 * la, 1 + 2 * la + lr):
        if bits[first, k] & bits[second, k + lr] & bits[third, k + 2 * lr] != 0:
            return True
    return False


@jit
def f1(matched: int, candidate: int, reference: int) -> float:
    """Compute F1 from the numbers of matched tuples, candidate tuples and reference tuples; 0 without matches.

    If several tuples of the candidate match the same tuple of the references, each of them counts, as in the jar. The
    operations have the same order as in the jar, so results are bit-identical.
    """
    if matched == 0 or reference == 0:
        return 0.0
    precision, recall = matched / candidate, matched / reference
    return 2.0 * (precision * recall) / (precision + recall)


@jit
def open_refs(refs: I4, captions: Captions, graph: ReferenceGraph) -> int:
    """Merge references into an empty graph, mark the matching concepts, and return the number of tuples."""
    merge(refs, captions.rows, captions.words, graph)
    mark(captions.words, graph)
    return int(graph.used[NODES] + graph.used[ATTRIBUTES] + graph.used[RELATIONS])


@jit
def close_refs(graph: ReferenceGraph) -> None:
    """Clear the marks and the graph."""
    # Only marked concepts are cleared, so the cost does not depend on the number of concepts.
    for i in range(graph.used[TOUCHED]):
        for k in range(graph.bits.shape[1]):
            graph.bits[graph.touched[i], k] = 0
    clear_graph(graph)


@jit
def _score_set(refs: I4, mode: int, captions: Captions, candidates: I4, graph: ReferenceGraph, out: F8) -> None:
    """Score one reference set against N candidates: fill `out`, (N,)."""
    start, concepts = captions.graphs
    bits, la, lr = graph.bits, graph.limbs[0], graph.limbs[1]
    out[:] = 0.0
    step = len(refs) if mode == MERGED else 1
    for r in range(0, len(refs), step):
        reference = open_refs(refs[r : r + step], captions, graph)
        for i in range(len(candidates)):
            lo, hi, matched = start[candidates[i]], start[candidates[i] + 1], 0
            for t in range(lo, hi):
                first, second, third = concepts[t, 0], concepts[t, 1], concepts[t, 2]
                matched += int(matches(first, second, third, bits, la, lr))
            if matched:  # otherwise F1 is 0 and does not change a sum or a maximum
                score = f1(matched, hi - lo, reference)
                out[i] = max(out[i], score) if mode == BEST else out[i] + score
        close_refs(graph)
    if mode == MEAN:
        out /= len(refs)


@jit
def score_block(
    indptr: I8, sets: I4, mode: int, captions: Captions, candidates: I4, graph: ReferenceGraph, out: F8
) -> None:
    """Score M reference sets against N candidates: fill `out`, (M, N)."""
    for m in range(len(indptr) - 1):
        _score_set(sets[indptr[m] : indptr[m + 1]], mode, captions, candidates, graph, out[m])


@jit
def score_pairs(
    indptr: I8, sets: I4, mode: int, captions: Captions, candidates: I4, graph: ReferenceGraph, out: F8
) -> None:
    """Score reference set p against candidate ``candidates[p]``: fill `out`, (P,)."""
    # Consecutive equal sets are merged and marked once, because this costs more than scoring a candidate.
    lo = 0
    while lo < len(candidates):
        refs = sets[indptr[lo] : indptr[lo + 1]]
        hi = lo + 1
        while hi < len(candidates) and np.array_equal(sets[indptr[hi] : indptr[hi + 1]], refs):
            hi += 1
        _score_set(refs, mode, captions, candidates[lo:hi], graph, out[lo:hi])
        lo = hi
