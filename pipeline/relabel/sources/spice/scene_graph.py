"""Scene graphs: tuples of captions, and the graph that SPICE merges them into; compiled.

Anderson, Fernando, Johnson, Gould: "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016, section 3.
Where the paper is silent, this follows the jar:

- An object becomes a node. One that shares a WordNet synonym set with nodes joins the node of the largest Jaccard
  similarity of sets of synonym sets, and brings its own sets along. A tie is broken there by the hash of an object's
  address, so the jar itself gives one result or the other (5 of COCO's 5,000 test images have one); here the later
  node wins.
- An attribute of a node joins the first similar attribute of it, a relation the first similar one between the same
  two nodes. What shares a word or a synonym set is similar.
- So the graph depends on the order of tuples, and is no plain union.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U8 = NDArray[np.uint64]
NODES, ATTRIBUTES, RELATIONS, CONCEPTS, SEEN, RELATED, LINKS, STAMP, TOUCHED = range(9)
"""Counters in `ReferenceGraph.used`."""
LIMB = 64


class Rows(NamedTuple):
    """Tuples of N captions as the parser gives them, in its order.

    Attributes
    ----------
    start : (N + 1,) int64
        The tuples of caption i are ``start[i]:start[i + 1]``.
    words : (T, 3) int32
        (object, -1, -1), (object, attribute, -1) or (subject, object, relation), by number of the word.
    """

    start: I8
    words: I4


class Words(NamedTuple):
    """V words with their WordNet synonym sets, and the concepts of candidates that match them.

    Attributes
    ----------
    start : (V + 1,) int64
    synsets : (start[-1],) int32
        Synonym sets of word w at ``start[w]:start[w + 1]``, numbered from 0 within the corpus.
    signature : (V,) uint64
        One bit a synonym set, several sets a bit: words without a common bit share no set.
    near_start : (V + 1,) int64
    near : (near_start[-1],) int32
        Concepts that hold the word or share a synonym set with it.
    """

    start: I8
    synsets: I4
    signature: U8
    near_start: I8
    near: I4


class Graphs(NamedTuple):
    """Scene graphs of N captions as candidates.

    Attributes
    ----------
    start : (N + 1,) int64
    concepts : (T, 3) int32
        Tuples as in `Rows`, but of concepts, relations as (subject, object, relation): objects first, then attributes,
        then relations. Concept c is word c alone; from V on, words merged within one caption.
    """

    start: I8
    concepts: I4


class ReferenceGraph(NamedTuple):
    """ReferenceGraph for one reference graph and for its marks on C concepts.

    A concept of the graph is a node's object, an attribute or a relation: words that were merged, and their synonym
    sets as a linked list.

    Attributes
    ----------
    used : (9,) int64
        How much of the arrays is used, and the last stamp; see `NODES` and others.
    limbs : (2,) int64
        64-bit words it takes to number the attributes and the relations.
    node_of : (V,) int32
        Node of each word, -1 where it is in none.
    seen : int32
        Words that are in a node.
    node : int32
        Concept of each node.
    source, target, related, number : int32
        Of each attribute or relation: its nodes (an attribute has no target: -1), its concept, and which of its kind
        it is.
    member, member_of : int32
        Words of attributes and relations, and whose they are.
    size, held, head : int32
        Of each concept: words, synonym sets, first link.
    signature : uint64
        Of each concept.
    value, link : int32
        Synonym set of each link, and the next link, -1 at the end.
    stamp : int64
        By synonym set.
    node_bits : (nodes, limbs[0] + 2 * limbs[1]) uint64
        Attributes that a node owns, relations it is the subject of, and those it is the object of.
    bits : (C, 1 + 2 * limbs[0] + 3 * limbs[1]) uint64
        What a concept matches: flags (1: a node, 2: anything), owners, attributes, subjects, objects, relations.
        Zero between graphs.
    touched : (C,) int32
        Concepts that have bits.
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
    signature: U8
    value: I4
    link: I4
    stamp: I8
    node_bits: U8
    bits: U8
    touched: I4

    @classmethod
    def of(cls, words: Words, concepts: int, most: NDArray[np.integer]) -> ReferenceGraph:
        """Allocate an empty graph.

        Parameters
        ----------
        words : Words
        concepts : int
        most : (4,) int
            Of the largest graph to come: tuples, attributes, relations, and synonym sets of all its words.
        """
        tuples, attributes, relations, links = (int(n) for n in most)
        limbs = np.array([-(-attributes // LIMB), -(-relations // LIMB)], np.int64)
        every = np.empty((11, 3 * tuples + 1), np.int32)
        wide, narrow = int(1 + 2 * limbs[0] + 3 * limbs[1]), int(limbs[0] + 2 * limbs[1])
        link = np.empty((2, links + 1), np.int32)
        return cls(
            np.zeros(9, np.int64),
            limbs,
            np.full(len(words.signature), -1, np.int32),
            every[0],
            every[1],
            every[2],
            every[3],
            every[4],
            every[5],
            every[6],
            every[7],
            every[8],
            every[9],
            every[10],
            np.empty(3 * tuples + 1, np.uint64),
            link[0],
            link[1],
            np.zeros(int(words.synsets.max(initial=-1)) + 1, np.int64),
            np.zeros((2 * tuples + 1, narrow), np.uint64),
            np.zeros((concepts, wide), np.uint64),
            np.empty(concepts, np.int32),
        )

    def holds(self, most: NDArray[np.integer]) -> bool:
        """Return whether a graph of at most this size fits: see `of`."""
        tuples, attributes, relations, links = (int(n) for n in most)
        long = 3 * tuples < len(self.seen) and links < len(self.value)
        return long and attributes <= LIMB * self.limbs[0] and relations <= LIMB * self.limbs[1]


@jit
def _shared(link: int, value: I4, following: I4, stamp: I8, current: int) -> int:
    """Count the synonym sets of a linked list that are stamped."""
    total = 0
    while link >= 0:
        total += int(stamp[value[link]] == current)
        link = following[link]
    return total


@jit
def _most_similar(
    own: int,
    bits: int,
    current: int,
    nodes: int,
    node: I4,
    signature: U8,
    held: I4,
    head: I4,
    value: I4,
    link: I4,
    stamp: I8,
) -> int:
    """Find the node of the largest Jaccard similarity to the word whose sets are stamped; -1 if none shares a set."""
    best, most, of = -1, 0, 1
    for n in range(nodes):
        concept = node[n]
        if signature[concept] & bits == 0:  # no common bit, hence no common synonym set
            continue
        shared = _shared(head[concept], value, link, stamp, current)
        union = held[concept] + own - shared
        # shared / union >= most / of, in whole numbers; >= lets the later node win a tie.
        if shared > 0 and shared * of >= most * union:
            best, most, of = n, shared, union
    return best


@jit
def _same(word: int, e: int, members: int, member: I4, member_of: I4) -> bool:
    """Return whether an attribute or relation has a word."""
    found = False
    for m in range(members):
        found = found or (member_of[m] == e and member[m] == word)
    return found


@jit
def merge(captions: I4, rows: Rows, words: Words, graph: ReferenceGraph) -> None:
    """Merge the tuples of some captions, one after another, into an empty graph.

    Parameters
    ----------
    captions : (R,) int32
        Captions of `rows`, by number.
    rows, words
    graph : ReferenceGraph
        Filled.
    """
    count, signature, head, value, link_of, stamp = (
        graph.used,
        graph.signature,
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
            # Its objects come first, then what is said of them. One place where words are joined keeps this fast:
            # a call costs more than the work, with so many arrays.
            for place in range(3):
                word = rows.words[t, place]
                if word < 0:
                    break
                is_node = place == 0 or (place == 1 and triple)
                if is_node and graph.node_of[word] >= 0:  # the word is in a node already
                    source, target = (graph.node_of[word], target) if place == 0 else (source, graph.node_of[word])
                    continue
                # A fresh stamp marks the word's synonym sets, so an intersection is one pass over the other's list.
                count[STAMP] += 1
                current, own = count[STAMP], words.start[word + 1] - words.start[word]
                for s in range(words.start[word], words.start[word + 1]):
                    stamp[words.synsets[s]] = current
                concept = -1
                if is_node:
                    found = -1
                    if own > 0:  # a word without synonym sets is similar to itself alone
                        found = _most_similar(
                            own,
                            words.signature[word],
                            current,
                            count[NODES],
                            graph.node,
                            signature,
                            graph.held,
                            head,
                            value,
                            link_of,
                            stamp,
                        )
                    graph.seen[count[SEEN]] = word
                    count[SEEN] += 1
                    if found < 0:  # similar to no node: a new one
                        found = count[NODES]
                        graph.node[found] = count[CONCEPTS]
                        count[NODES] += 1
                    else:
                        concept = graph.node[found]
                    graph.node_of[word] = found
                    source, target = (found, target) if place == 0 else (source, found)
                else:
                    # Join the first similar attribute of the node, or relation between the two nodes. One that has
                    # the word already needs no change, and one that is this word alone precedes a similar one.
                    found, there = -1, False
                    for e in range(count[ATTRIBUTES] + count[RELATIONS]):
                        if graph.source[e] != source or graph.target[e] != target:
                            continue
                        related = graph.related[e]
                        here = _same(word, e, count[RELATED], graph.member, graph.member_of)
                        if here and graph.size[related] == 1:
                            there = True
                            break
                        if found >= 0 or there:
                            continue
                        if here:
                            there = True
                        elif _shared(head[related], value, link_of, stamp, current) > 0:
                            found = e
                    if there:
                        continue
                    if found < 0:
                        kind = RELATIONS if triple else ATTRIBUTES
                        found = count[ATTRIBUTES] + count[RELATIONS]
                        graph.source[found], graph.target[found] = source, target
                        graph.related[found], graph.number[found] = count[CONCEPTS], count[kind]
                        count[kind] += 1
                    else:
                        concept = graph.related[found]
                    graph.member[count[RELATED]], graph.member_of[count[RELATED]] = word, found
                    count[RELATED] += 1
                # Add the word to its concept: an empty one if it is new.
                if concept < 0:
                    concept = count[CONCEPTS]
                    count[CONCEPTS] += 1
                    head[concept], graph.held[concept] = -1, 0
                    graph.size[concept], signature[concept] = 0, 0
                link = head[concept]
                while link >= 0:
                    stamp[value[link]] = 0  # the concept has this set: unstamp it, so that it is not added twice
                    link = link_of[link]
                for s in range(words.start[word], words.start[word + 1]):
                    if stamp[words.synsets[s]] == current:
                        value[count[LINKS]] = words.synsets[s]
                        link_of[count[LINKS]] = head[concept]
                        head[concept] = count[LINKS]
                        count[LINKS] += 1
                        graph.held[concept] += 1
                graph.size[concept] += 1
                signature[concept] |= words.signature[word]


@jit
def clear_graph(graph: ReferenceGraph) -> None:
    """Empty a graph; stamps stay valid, as they only ever grow."""
    for i in range(graph.used[SEEN]):
        graph.node_of[graph.seen[i]] = -1
    stamp = graph.used[STAMP]
    graph.used[:] = 0
    graph.used[STAMP] = stamp
