"""The tuples of a caption, or of all references of an image, merged into one scene graph as SPICE does; compiled.

Anderson, Fernando, Johnson, Gould: "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016, section 3, and
what its jar does where the paper is silent:

- An object becomes a node. One that shares a WordNet synonym set with nodes joins the node of the largest Jaccard
  similarity of sets of synonym sets, and brings its own sets along. A tie is broken there by the hash of an object's
  address, so the jar itself gives one result or the other (5 of COCO's 5,000 test images have one); here the later
  node wins.
- An attribute of a node joins the first similar attribute of it, a relation the first similar one between the same
  two nodes. What shares a word or a synonym set is similar.
- So the graph depends on the order of tuples, and is no plain union.
"""

from __future__ import annotations

from relabel.sources.ngrams.kernels import jit
from relabel.sources.scene_graphs.structures import (
    ATTRIBUTES,
    CONCEPTS,
    I4,
    I8,
    LINKS,
    NODES,
    RELATED,
    RELATIONS,
    SEEN,
    STAMP,
    U8,
    Room,
    Rows,
    Words,
)


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
        if signature[concept] & bits == 0:
            continue
        shared = _shared(head[concept], value, link, stamp, current)
        union = held[concept] + own - shared
        if shared > 0 and shared * of >= most * union:
            best, most, of = n, shared, union
    return best


@jit
def _same(word: int, e: int, members: int, member: I4, member_of: I4) -> bool:
    """Say whether an attribute or relation has a word."""
    found = False
    for m in range(members):
        found = found or (member_of[m] == e and member[m] == word)
    return found


@jit
def merge(captions: I4, rows: Rows, words: Words, room: Room) -> None:
    """Merge the tuples of some captions, one after another, into a graph in `room`, which is empty.

    Parameters
    ----------
    captions : (R,) int32
        Places in `rows`.
    rows, words
    room : Room
    """
    count, signature, head, value, link_of, stamp = (
        room.used,
        room.signature,
        room.head,
        room.value,
        room.link,
        room.stamp,
    )
    for caption in captions:
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
                if is_node and room.node_of[word] >= 0:
                    source, target = (room.node_of[word], target) if place == 0 else (source, room.node_of[word])
                    continue
                count[STAMP] += 1
                current, own = count[STAMP], words.start[word + 1] - words.start[word]
                for s in range(words.start[word], words.start[word + 1]):
                    stamp[words.synsets[s]] = current
                concept = -1
                if is_node:
                    found = -1
                    if own > 0:
                        found = _most_similar(
                            own,
                            words.signature[word],
                            current,
                            count[NODES],
                            room.node,
                            signature,
                            room.held,
                            head,
                            value,
                            link_of,
                            stamp,
                        )
                    room.seen[count[SEEN]] = word
                    count[SEEN] += 1
                    if found < 0:
                        found = count[NODES]
                        room.node[found] = count[CONCEPTS]
                        count[NODES] += 1
                    else:
                        concept = room.node[found]
                    room.node_of[word] = found
                    source, target = (found, target) if place == 0 else (source, found)
                else:
                    found, there = -1, False
                    for e in range(count[ATTRIBUTES] + count[RELATIONS]):
                        if room.source[e] != source or room.target[e] != target:
                            continue
                        related = room.related[e]
                        here = _same(word, e, count[RELATED], room.member, room.member_of)
                        if here and room.size[related] == 1:  # this word alone goes before an earlier similar one
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
                        room.source[found], room.target[found] = source, target
                        room.related[found], room.number[found] = count[CONCEPTS], count[kind]
                        count[kind] += 1
                    else:
                        concept = room.related[found]
                    room.member[count[RELATED]], room.member_of[count[RELATED]] = word, found
                    count[RELATED] += 1
                if concept < 0:
                    concept = count[CONCEPTS]
                    count[CONCEPTS] += 1
                    head[concept], room.held[concept] = -1, 0
                    room.size[concept], signature[concept] = 0, 0
                link = head[concept]
                while link >= 0:
                    stamp[value[link]] = 0  # this set it has
                    link = link_of[link]
                for s in range(words.start[word], words.start[word + 1]):
                    if stamp[words.synsets[s]] == current:
                        value[count[LINKS]] = words.synsets[s]
                        link_of[count[LINKS]] = head[concept]
                        head[concept] = count[LINKS]
                        count[LINKS] += 1
                        room.held[concept] += 1
                room.size[concept] += 1
                signature[concept] |= words.signature[word]


@jit
def clear_graph(room: Room) -> None:
    """Empty the graph in `room`."""
    for i in range(room.used[SEEN]):
        room.node_of[room.seen[i]] = -1
    stamp = room.used[STAMP]
    room.used[:] = 0
    room.used[STAMP] = stamp
