"""What the kernels read and write: tuples of captions, words with their synonyms, scene graphs, and room for one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U8 = NDArray[np.uint64]
NODES, ATTRIBUTES, RELATIONS, CONCEPTS, SEEN, RELATED, LINKS, STAMP, TOUCHED = range(9)
"""Places of `Room.used`."""
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


class Room(NamedTuple):
    """Room for one reference graph and for its marks on C concepts.

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
    def of(cls, words: Words, concepts: int, most: NDArray[np.integer]) -> Room:
        """Make room.

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
        """Say whether a graph of at most this size fits: see `of`."""
        tuples, attributes, relations, links = (int(n) for n in most)
        long = 3 * tuples < len(self.seen) and links < len(self.value)
        return long and attributes <= LIMB * self.limbs[0] and relations <= LIMB * self.limbs[1]
