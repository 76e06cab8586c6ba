"""Arrays of the kernels, created from the tuples of an encoding or of a new text."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, hstack

from relabel.core.numeric.csr import indptr_of
from relabel.core.numeric.kernels import jit
from relabel.sources.spice.encode import spelled
from relabel.sources.spice.scene_graph import (
    ATTRIBUTES,
    I4,
    I8,
    NODES,
    RELATED,
    RELATIONS,
    SEEN,
    Captions,
    Graphs,
    ReferenceGraph,
    TupleRows,
    Words,
    clear_graph,
    merge,
)


class Scenes(NamedTuple):
    """Captions of an encoding, with the words and concepts that match references and candidates.

    `concepts`: number of concepts in the graphs.
    `size`: (N, 4) int64; upper bounds on the size of each caption's graph; see `ReferenceGraph.of`.
    """

    captions: Captions
    concepts: int
    size: I8


def scenes_of(tuples: pa.ChunkedArray, table: pa.Table) -> Scenes:
    """Create the arrays of encoded captions from their tuples (`spelled`) and all words (`words_table`)."""
    spelling = pc.cast(table["word"], pa.large_string()).combine_chunks()
    rows = rows_of(tuples, spelling)
    start = indptr_of(pc.list_value_length(table["synsets"]).to_numpy())
    _, synsets = np.unique(pc.list_flatten(table["synsets"]).to_numpy(), return_inverse=True)
    sets = synsets.reshape(-1).astype(np.int32)
    # The matching concepts of a word are computed after the merge, which does not need them.
    empty = np.zeros(len(spelling) + 1, np.int64), np.empty(0, np.int32)
    words = Words(start, sets, *empty)
    size = sizes_of(rows, words)
    graphs, multiple = _merged_graphs(rows, words, size)
    concepts = len(spelling) + len(multiple[0]) - 1
    near_start, near = near_concepts(words, *multiple)
    return Scenes(Captions(rows, words._replace(near_start=near_start, near=near), graphs), concepts, size)


def rows_of(tuples: pa.ChunkedArray, spelling: pa.Array) -> TupleRows:
    """Number the words of tuples by their index in `spelling`. It must contain all words."""
    start, sizes, words = spelled(tuples)
    codes = pc.index_in(pc.cast(words, pa.large_string()), value_set=spelling).to_numpy()
    out = np.full((len(sizes), 3), -1, np.int32)
    tuple_ = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes, dtype=np.int64)
    out[tuple_, np.arange(len(codes)) - (ends - sizes)[tuple_]] = codes
    return TupleRows(start, out)


def sizes_of(rows: TupleRows, words: Words) -> I8:
    """Return upper bounds on the sizes of graphs, (N, 4) int64 (see `ReferenceGraph.of`). Bounds of a set add up."""
    held = rows.words >= 0
    links = np.where(held, np.diff(words.start)[rows.words], 0).sum(axis=1)
    relation = held[:, 2]
    each = np.stack([np.ones_like(links), held[:, 1] & ~relation, relation, links], axis=1)
    total = np.zeros((len(each) + 1, 4), np.int64)
    np.cumsum(each, axis=0, out=total[1:])
    return np.asarray(np.diff(total[rows.start], axis=0))


def _merged_graphs(rows: TupleRows, words: Words, size: I8) -> tuple[Graphs, tuple[I8, I4]]:
    """Merge the tuples of every caption. Returns the graphs, and their concepts of more than one word."""
    graph = ReferenceGraph.of(words, 0, size.max(axis=0, initial=1))
    total = int(size[:, 0].sum())
    start = np.zeros(len(rows.start), np.int64)
    # At most three tuples per row: the two objects of a relation may not occur in other tuples.
    concepts = np.full((3 * total + 1, 3), -1, np.int32)
    multiple_start, multiple = np.zeros(3 * total + 2, np.int64), np.empty(3 * total + 1, np.int32)
    tuples, several = _fill_graphs(rows, words, graph, start, concepts, multiple_start, multiple)
    # The kernel numbers every concept of several words separately. Equal sets of words become one concept.
    numbers, word_sets = _number_word_sets(multiple_start[: several + 1], multiple)
    concepts = concepts[:tuples].copy()
    count = len(words.start) - 1
    beyond = concepts >= count
    concepts[beyond] = numbers[concepts[beyond] - count] + count
    return Graphs(start, concepts), word_sets


@jit
def _concept_number(members: I4, of: I4, count: int, wanted: int, state: I8, start: I8, out: I4) -> int:
    """Return the number of a concept: that of its only word, or a new number after the numbers of all words.

    `state`: number of concepts with several words, and number of words. The words of a new concept are appended to
    `out` in ascending order.
    """
    first = at = start[state[0]]
    for m in range(count):
        if of[m] == wanted:
            out[at] = members[m]
            at += 1
    if at == first + 1:
        return int(out[first])
    out[first:at].sort()  # so equal sets of words are equal lists
    state[0] += 1
    start[state[0]] = at
    return int(state[1] + state[0] - 1)


@jit
def _fill_graphs(
    rows: TupleRows, words: Words, graph: ReferenceGraph, start: I8, concepts: I4, multiple_start: I8, multiple: I4
) -> tuple[int, int]:
    """Fill the graphs of all captions. Returns the number of tuples, and of concepts of several words."""
    state = np.zeros(2, np.int64)
    state[1] = len(words.start) - 1
    owner_of, one, tuples = np.empty(len(graph.seen), np.int32), np.empty(1, np.int32), 0
    for i in range(len(rows.start) - 1):
        one[0] = i
        merge(one, rows, words, graph)
        nodes, seen, members = graph.used[NODES], graph.used[SEEN], graph.used[RELATED]
        for s in range(seen):
            owner_of[s] = graph.node_of[graph.seen[s]]
        first = tuples
        # Objects come first, so attributes and relations refer to node n as tuple first + n.
        for n in range(nodes):
            concepts[tuples, 0] = _concept_number(graph.seen, owner_of, seen, n, state, multiple_start, multiple)
            tuples += 1
        # Two passes over the edges: all attributes, then all relations.
        for relations in range(2):
            for e in range(graph.used[ATTRIBUTES] + graph.used[RELATIONS]):
                if (graph.target[e] >= 0) != (relations == 1):
                    continue
                concept = _concept_number(graph.member, graph.member_of, members, e, state, multiple_start, multiple)
                concepts[tuples, 0] = concepts[first + graph.source[e], 0]
                if relations:
                    concepts[tuples, 1], concepts[tuples, 2] = concepts[first + graph.target[e], 0], concept
                else:
                    concepts[tuples, 1] = concept
                tuples += 1
        start[i + 1] = tuples
        clear_graph(graph)
    return tuples, int(state[0])


def _number_word_sets(start: I8, words: I4) -> tuple[NDArray[np.int32], tuple[I8, I4]]:
    """Number sets of words by first occurrence. Returns the number of each set, and the distinct sets as CSR rows."""
    distinct: dict[tuple[int, ...], int] = {}
    flat = words.tolist()
    edges = start.tolist()
    numbers = [distinct.setdefault(tuple(flat[a:b]), len(distinct)) for a, b in pairwise(edges)]
    members = np.array([word for key in distinct for word in key], np.int32)
    return np.array(numbers, np.int32), (indptr_of([len(key) for key in distinct]), members)


def near_concepts(words: Words, multiple_start: I8, multiple: I4) -> tuple[I8, I4]:
    """Return, for every word, the concepts that contain it or share a synonym set with it, as CSR rows.

    `multiple_start`, `multiple`: words of each concept with more than one word, as CSR rows.
    """
    count = len(words.start) - 1
    synsets = _incidence(words.start, words.synsets, 1 + int(words.synsets.max(initial=-1)))
    similar = synsets @ synsets.T + eye_array(count, dtype=np.int32, format="csr")
    # If a word is similar, all concepts that contain it are similar.
    near = hstack([similar, similar @ _incidence(multiple_start, multiple, count).T], format="csr")
    return near.indptr.astype(np.int64), near.indices.astype(np.int32)


def _incidence(start: I8, columns: I4, width: int) -> csr_array:
    return csr_array((np.ones(len(columns), np.int32), columns, start), shape=(len(start) - 1, width))
