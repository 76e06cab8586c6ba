"""Scene graphs: tuples of captions, and the graph that SPICE merges them into; compiled.

Anderson, Fernando, Johnson, Gould: "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016, section 3.
Where the paper does not specify the merge, this module follows the jar:

- An object becomes a node. If it shares a WordNet synonym set with existing nodes, it joins the one with the largest
  Jaccard similarity of sets of synonym sets, and adds its sets to that node's. The jar breaks ties by the hash of an
  object's address, so its result varies (5 of COCO's 5,000 test images have a tie). This module takes the later node.
- An attribute joins the first similar attribute of the same node. A relation joins the first similar relation between
  the same two nodes. Similar means that they share a word or a synonym set.
- So the graph depends on the order of tuples, and is not a plain union.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U8 = NDArray[np.uint64]
NODES, ATTRIBUTES, RELATIONS, CONCEPTS, SEEN, RELATED, LINKS, STAMP, TOUCHED = range(9)
"""Indices of the counters in `ReferenceGraph.used`."""
LIMB = 64
"""Bits of one word of a bit set."""


class TupleRows(NamedTuple):
    """Tuples of N captions, in the parser's order.

    `start`: (N + 1,) int64; the tuples of caption i are ``start[i]:start[i + 1]``.
    `words`: (T, 3) int32; (object, -1, -1), (object, attribute, -1) or (subject, object, relation), as numbers of
        words.
    """

    start: I8
    words: I4


class Words(NamedTuple):
    """V words with their WordNet synonym sets, and the concepts of candidates that match them.

    `start`: (V + 1,) int64.
    `synsets`: (start[-1],) int32; synonym sets of word w at ``start[w]:start[w + 1]``, numbered from 0 within the
        corpus.
    `near_start`: (V + 1,) int64.
    `near`: (near_start[-1],) int32; concepts that contain the word or share a synonym set with it.
    """

    start: I8
    synsets: I4
    near_start: I8
    near: I4


class Graphs(NamedTuple):
    """Scene graphs of N captions as candidates.

    `start`: (N + 1,) int64.
    `concepts`: (T, 3) int32; tuples as in `TupleRows`, but of concepts: objects first, then attributes, then relations.
        Concept c < V is word c alone. Concepts from V on are words that were merged within one caption.
    """

    start: I8
    concepts: I4


class Captions(NamedTuple):
    """Captions as references, by their tuples and words, and captions as candidates, by their graphs."""

    rows: TupleRows
    words: Words
    graphs: Graphs


class ReferenceGraph(NamedTuple):
    """Preallocated graph of one reference set, and its marks on C concepts of candidates.

    A concept of the graph is the object of a node, an attribute or a relation. It has the words that were merged, and
    their synonym sets as a linked list. Attributes and relations together are called edges.

    `used`: (9,) int64; number of used elements of the arrays, and the last stamp. The indices are `NODES`, `ATTRIBUTES`
        and so on.
    `limbs`: (2,) int64; number of 64-bit words of a bit set of attributes, and of one of relations.
    `node_of`: (V,) int32; node of each word, -1 if it is in none.
    `seen`: words that are in a node.
    `node`: concept of each node.
    `source`, `target`, `related`, `number`: of each edge: its nodes (the target of an attribute is -1), its concept,
        and its number among the edges of its kind.
    `member`, `member_of`: words of edges, and the edge of each.
    `size`, `held`, `head`: of each concept: its number of words, its number of synonym sets, and its first link.
    `value`, `link`: synonym set of each link, and the next link, -1 at the end.
    `stamp`: of each synonym set: the number of the word that was last compared by it.
    `node_bits`: (nodes, limbs[0] + 2 * limbs[1]) uint64; bit sets of each node: attributes that it owns, relations
        whose subject it is, relations whose object it is.
    `bits`: (C, 1 + 2 * limbs[0] + 3 * limbs[1]) uint64; parts of the graph that a concept matches: flags (1: a node, 2:
        any part), then bit sets of owned attributes, attributes, subjects, objects and relations. Zero between graphs.
    `touched`: (C,) int32; concepts that have bits.
    """

    used: I8
    limbs: I8
    node_of: I4
    seen: I4
    node: I4
    source: I4
    target: I4
    related: I4
    number: I4
    member: I4
    member_of: I4
    size: I4
    held: I4
    head: I4
    value: I4
    link: I4
    stamp: I8
    node_bits: U8
    bits: U8
    touched: I4

    @classmethod
    def of(cls, words: Words, concepts: int, most: NDArray[np.integer]) -> ReferenceGraph:
        """Allocate an empty graph.

        `most`: (4,) int; size of the largest graph: tuples, attributes, relations, and synonym sets of all its words.
        """
        tuples, attributes, relations, links = (int(n) for n in most)
        limbs = np.array([-(-attributes // LIMB), -(-relations // LIMB)], np.int64)
        wide, narrow = int(1 + 2 * limbs[0] + 3 * limbs[1]), int(limbs[0] + 2 * limbs[1])
        arrays = (
            np.zeros(9, np.int64),
            limbs,
            np.full(len(words.start) - 1, -1, np.int32),
            *np.empty((11, 3 * tuples + 1), np.int32),
            *np.empty((2, links + 1), np.int32),
            np.zeros(int(words.synsets.max(initial=-1)) + 1, np.int64),
            np.zeros((2 * tuples + 1, narrow), np.uint64),
            np.zeros((concepts, wide), np.uint64),
            np.empty(concepts, np.int32),
        )
        return cls._make(arrays)


@jit
def _shared(link: int, value: I4, following: I4, stamp: I8, current: int) -> int:
    """Count the synonym sets of a linked list that have the current stamp."""
    total = 0
    while link >= 0:
        total += int(stamp[value[link]] == current)
        link = following[link]
    return total


@jit
def _most_similar(
    set_count: int,
    current: int,
    nodes: int,
    node: I4,
    held: I4,
    head: I4,
    value: I4,
    link: I4,
    stamp: I8,
) -> int:
    """Return the node with the largest Jaccard similarity to the stamped synonym sets; -1 if no node shares a set."""
    best, most, of = -1, 0, 1
    for n in range(nodes):
        concept = node[n]
        shared = _shared(head[concept], value, link, stamp, current)
        union = held[concept] + set_count - shared
        # shared / union >= most / of, in integers; >= lets the later node win a tie.
        if shared > 0 and shared * of >= most * union:
            best, most, of = n, shared, union
    return best


@jit
def _has_word(word: int, edge: int, members: int, member: I4, member_of: I4) -> bool:
    """Return whether an edge has a word."""
    present = False
    for m in range(members):
        present = present or (member_of[m] == edge and member[m] == word)
    return present


@jit
def merge(captions: I4, rows: TupleRows, words: Words, graph: ReferenceGraph) -> None:
    """Merge the tuples of captions, one after another, into an empty graph."""
    count, head, value, link_of, stamp = (
        graph.used,
        graph.head,
        graph.value,
        graph.link,
        graph.stamp,
    )
    for caption in captions:
        # The order of tuples matters: each is compared with the graph of those before it.
        for t in range(rows.start[caption], rows.start[caption + 1]):
            triple = rows.words[t, 2] >= 0
            source, target = -1, -1
            # The objects of a tuple come first, then its attribute or relation, which refers to their nodes. Words join
            # concepts at one place of the code: with so many arrays a call costs more than the work.
            for position in range(3):
                word = rows.words[t, position]
                if word < 0:
                    break
                is_node = position == 0 or (position == 1 and triple)
                if is_node and graph.node_of[word] >= 0:  # the word is in a node already
                    source, target = (graph.node_of[word], target) if position == 0 else (source, graph.node_of[word])
                    continue
                # A fresh stamp marks the word's synonym sets, so an intersection is one pass over the other's list.
                count[STAMP] += 1
                current, set_count = count[STAMP], words.start[word + 1] - words.start[word]
                for s in range(words.start[word], words.start[word + 1]):
                    stamp[words.synsets[s]] = current
                concept = -1
                if is_node:
                    node = -1
                    if set_count > 0:  # a word without synonym sets is similar to itself alone
                        node = _most_similar(
                            set_count,
                            current,
                            count[NODES],
                            graph.node,
                            graph.held,
                            head,
                            value,
                            link_of,
                            stamp,
                        )
                    graph.seen[count[SEEN]] = word
                    count[SEEN] += 1
                    if node < 0:  # similar to no node: make a new one
                        node = count[NODES]
                        graph.node[node] = count[CONCEPTS]
                        count[NODES] += 1
                    else:
                        concept = graph.node[node]
                    graph.node_of[word] = node
                    source, target = (node, target) if position == 0 else (source, node)
                else:
                    # Join the first similar edge between the same nodes. An edge that has the word already needs no
                    # change, unless an earlier edge is similar. An edge of this word alone wins over that one.
                    edge, present = -1, False
                    for e in range(count[ATTRIBUTES] + count[RELATIONS]):
                        if graph.source[e] != source or graph.target[e] != target:
                            continue
                        related = graph.related[e]
                        has_word = _has_word(word, e, count[RELATED], graph.member, graph.member_of)
                        if has_word and graph.size[related] == 1:
                            present = True
                            break
                        if edge >= 0 or present:  # decided, but for an edge of this word alone
                            continue
                        if has_word:
                            present = True
                        elif _shared(head[related], value, link_of, stamp, current) > 0:
                            edge = e
                    if present:
                        continue
                    if edge < 0:  # similar to no edge: make a new one
                        kind = RELATIONS if triple else ATTRIBUTES
                        edge = count[ATTRIBUTES] + count[RELATIONS]
                        graph.source[edge], graph.target[edge] = source, target
                        graph.related[edge], graph.number[edge] = count[CONCEPTS], count[kind]
                        count[kind] += 1
                    else:
                        concept = graph.related[edge]
                    graph.member[count[RELATED]], graph.member_of[count[RELATED]] = word, edge
                    count[RELATED] += 1
                # Add the word to its concept. A new node or edge gets an empty concept first.
                if concept < 0:
                    concept = count[CONCEPTS]
                    count[CONCEPTS] += 1
                    head[concept], graph.held[concept] = -1, 0
                    graph.size[concept] = 0
                link = head[concept]
                while link >= 0:
                    stamp[value[link]] = 0  # the concept has this set: unstamp it, so that it is not added twice
                    link = link_of[link]
                for s in range(words.start[word], words.start[word + 1]):
                    if stamp[words.synsets[s]] == current:
                        # Prepend to the concept's list. Links are taken from one pool, which `clear_graph` empties.
                        value[count[LINKS]] = words.synsets[s]
                        link_of[count[LINKS]] = head[concept]
                        head[concept] = count[LINKS]
                        count[LINKS] += 1
                        graph.held[concept] += 1
                graph.size[concept] += 1


@jit
def clear_graph(graph: ReferenceGraph) -> None:
    """Empty a graph."""
    # Only words that were seen have a node. The last stamp is kept: stamps only grow, so old ones never match.
    for i in range(graph.used[SEEN]):
        graph.node_of[graph.seen[i]] = -1
    stamp = graph.used[STAMP]
    graph.used[:] = 0
    graph.used[STAMP] = stamp
