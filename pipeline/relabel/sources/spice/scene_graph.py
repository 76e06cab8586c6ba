"""Scene graphs: tuples of captions, and the graph into which SPICE merges them; compiled.

Anderson, Fernando, Johnson, Gould: "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016, section 3. The
paper does not specify the merge completely. This module follows the jar:

- An object becomes a node. If it shares a WordNet synonym set with existing nodes, it joins the node with the maximum
  Jaccard similarity of synonym sets, and adds its sets to the node. The jar breaks ties by the hash of an object's
  address, so its result varies (5 of COCO's 5,000 test images have a tie). This module takes the later node.
- An attribute joins the first similar attribute of the same node. A relation joins the first similar relation between
  the same two nodes. Similar means that they share a word or a synonym set.
- The graph therefore depends on the order of tuples and is not a union of sets.
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
"""Number of bits per word of a bit set."""


class TupleRows(NamedTuple):
    """Tuples of N captions, in the parser's order.

    `start`: (N + 1,) int64; the tuples of caption i are ``start[i]:start[i + 1]``.
    `words`: (T, 3) int32; numbers of words: (object, -1, -1), (object, attribute, -1) or (subject, object, relation).
    """

    start: I8
    words: I4


class Words(NamedTuple):
    """V words with their WordNet synonym sets, and the matching concepts of candidates.

    `start`: (V + 1,) int64.
    `synsets`: (start[-1],) int32; synonym sets of word w at ``start[w]:start[w + 1]``, numbered from 0 in the corpus.
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
        Concept c < V is the single word c. Concepts from V on are sets of words that were merged in a caption.
    """

    start: I8
    concepts: I4


class Captions(NamedTuple):
    """Captions as references (tuples and words) and as candidates (graphs)."""

    rows: TupleRows
    words: Words
    graphs: Graphs


class ReferenceGraph(NamedTuple):
    """Preallocated graph of one reference set, and its marks on C concepts of candidates.

    A concept of the graph is the object of a node, an attribute or a relation. It has the merged words, and their
    synonym sets as a linked list. Attributes and relations are both called edges.

    `used`: (9,) int64; number of used elements of the arrays, and the last stamp. The indices are `NODES`, `ATTRIBUTES`
        and so on.
    `limbs`: (2,) int64; number of 64-bit words in a bit set of attributes, and in one of relations.
    `node_of`: (V,) int32; node of each word, or -1.
    `seen`: words that are in a node.
    `node`: concept of each node.
    `source`, `target`, `related`, `number`: for each edge, its nodes (the target of an attribute is -1), its concept,
        and its number among the edges of the same kind.
    `member`, `member_of`: words of edges, and the edge of each word.
    `size`, `held`, `head`: for each concept, its number of words, its number of synonym sets, and its first link.
    `value`, `link`: for each link, its synonym set, and the next link or -1.
    `stamp`: for each synonym set, the number of the word that was last compared with it.
    `node_bits`: (nodes, limbs[0] + 2 * limbs[1]) uint64; bit sets of each node: its attributes, the relations with this
        node as subject, and the relations with this node as object.
    `bits`: (C, 1 + 2 * limbs[0] + 3 * limbs[1]) uint64; matches of each concept: flags (1: a node, 2: any match), then
        bit sets of owned attributes, attributes, subjects, objects and relations. Zero between graphs.
    `touched`: (C,) int32; concepts with bits.
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
    def of(cls, words: Words, concepts: int, maximum: NDArray[np.integer]) -> ReferenceGraph:
        """Allocate an empty graph.

        `maximum`: (4,) int; maximum numbers of tuples, attributes, relations, and synonym sets of all words.
        """
        tuples, attributes, relations, links = (int(n) for n in maximum)
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
    """Count the synonym sets in a linked list that have the current stamp."""
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
    """Return the node with the maximum Jaccard similarity to the stamped synonym sets, or -1 if no node shares one."""
    best, numerator, denominator = -1, 0, 1
    for n in range(nodes):
        concept = node[n]
        shared = _shared(head[concept], value, link, stamp, current)
        union = held[concept] + set_count - shared
        # shared / union >= numerator / denominator in integers. With >=, the later node wins a tie.
        if shared > 0 and shared * denominator >= numerator * union:
            best, numerator, denominator = n, shared, union
    return best


@jit
def _has_word(word: int, edge: int, members: int, member: I4, member_of: I4) -> bool:
    """Return whether an edge contains a word."""
    present = False
    for m in range(members):
        present = present or (member_of[m] == edge and member[m] == word)
    return present


@jit
def merge(captions: I4, rows: TupleRows, words: Words, graph: ReferenceGraph) -> None:
    """Merge the tuples of captions in order into an empty graph."""
    count, head, value, link_of, stamp = (
        graph.used,
        graph.head,
        graph.value,
        graph.link,
        graph.stamp,
    )
    for caption in captions:
        # Each tuple is compared with the graph of the previous tuples, so the order matters.
        for t in range(rows.start[caption], rows.start[caption + 1]):
            triple = rows.words[t, 2] >= 0
            source, target = -1, -1
            # Objects come first, then the attribute or relation that refers to their nodes. The code that adds a word
            # to a concept is inlined, because a call with so many arrays costs more than the work.
            for position in range(3):
                word = rows.words[t, position]
                if word < 0:
                    break
                is_node = position == 0 or (position == 1 and triple)
                if is_node and graph.node_of[word] >= 0:  # the word is in a node already
                    source, target = (graph.node_of[word], target) if position == 0 else (source, graph.node_of[word])
                    continue
                # Stamp the word's synonym sets. An intersection is then one pass over the other list.
                count[STAMP] += 1
                current, set_count = count[STAMP], words.start[word + 1] - words.start[word]
                for s in range(words.start[word], words.start[word + 1]):
                    stamp[words.synsets[s]] = current
                concept = -1
                if is_node:
                    node = -1
                    if set_count > 0:  # a word without synonym sets is only similar to itself
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
                    if node < 0:  # no similar node: create one
                        node = count[NODES]
                        graph.node[node] = count[CONCEPTS]
                        count[NODES] += 1
                    else:
                        concept = graph.node[node]
                    graph.node_of[word] = node
                    source, target = (node, target) if position == 0 else (source, node)
                else:
                    # Join the first similar edge between the same nodes. If an edge already has the word, nothing
                    # changes, unless an earlier edge is similar. An edge with only this word has precedence over both.
                    edge, present = -1, False
                    for e in range(count[ATTRIBUTES] + count[RELATIONS]):
                        if graph.source[e] != source or graph.target[e] != target:
                            continue
                        related = graph.related[e]
                        has_word = _has_word(word, e, count[RELATED], graph.member, graph.member_of)
                        if has_word and graph.size[related] == 1:
                            present = True
                            break
                        if edge >= 0 or present:  # decided, unless an edge with only this word follows
                            continue
                        if has_word:
                            present = True
                        elif _shared(head[related], value, link_of, stamp, current) > 0:
                            edge = e
                    if present:
                        continue
                    if edge < 0:  # no similar edge: create one
                        kind = RELATIONS if triple else ATTRIBUTES
                        edge = count[ATTRIBUTES] + count[RELATIONS]
                        graph.source[edge], graph.target[edge] = source, target
                        graph.related[edge], graph.number[edge] = count[CONCEPTS], count[kind]
                        count[kind] += 1
                    else:
                        concept = graph.related[edge]
                    graph.member[count[RELATED]], graph.member_of[count[RELATED]] = word, edge
                    count[RELATED] += 1
                # Add the word to its concept, after creating an empty concept for a new node or edge.
                if concept < 0:
                    concept = count[CONCEPTS]
                    count[CONCEPTS] += 1
                    head[concept], graph.held[concept] = -1, 0
                    graph.size[concept] = 0
                link = head[concept]
                while link >= 0:
                    stamp[value[link]] = 0  # the concept has this set already, so do not add it again
                    link = link_of[link]
                for s in range(words.start[word], words.start[word + 1]):
                    if stamp[words.synsets[s]] == current:
                        # Prepend to the concept's list, with a link from a pool that `clear_graph` empties.
                        value[count[LINKS]] = words.synsets[s]
                        link_of[count[LINKS]] = head[concept]
                        head[concept] = count[LINKS]
                        count[LINKS] += 1
                        graph.held[concept] += 1
                graph.size[concept] += 1


@jit
def clear_graph(graph: ReferenceGraph) -> None:
    """Empty a graph."""
    # Only seen words have a node. The last stamp is kept, because increasing stamps never match old ones.
    for i in range(graph.used[SEEN]):
        graph.node_of[graph.seen[i]] = -1
    stamp = graph.used[STAMP]
    graph.used[:] = 0
    graph.used[STAMP] = stamp
