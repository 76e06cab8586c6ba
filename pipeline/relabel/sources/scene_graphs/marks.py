"""What a reference graph matches: for every concept, a bit each attribute and relation that it can take part in.

A candidate's tuple matches if some tuple of the references is similar in every place. With one bit a tuple of the
references that is one AND of two or three words, whatever the number of synonyms.
"""

from __future__ import annotations

import numpy as np

from relabel.sources.ngrams.kernels import jit
from relabel.sources.scene_graphs.structures import (
    ATTRIBUTES,
    LIMB,
    NODES,
    RELATED,
    RELATIONS,
    SEEN,
    TOUCHED,
    U8,
    Room,
    Words,
)

NODE, _TOUCHED, _ONE = np.uint64(1), np.uint64(2), np.uint64(1)


@jit
def mark(words: Words, room: Room) -> None:
    """Mark every concept with what it matches of the graph in `room`."""
    la, lr, bits, of_nodes = room.limbs[0], room.limbs[1], room.bits, room.node_bits
    touched, count = room.touched, 0
    for n in range(room.used[NODES]):
        for k in range(la + 2 * lr):
            of_nodes[n, k] = 0
    for e in range(room.used[ATTRIBUTES] + room.used[RELATIONS]):
        limb, bit = room.number[e] // LIMB, _ONE << np.uint64(room.number[e] % LIMB)
        if room.target[e] < 0:
            of_nodes[room.source[e], limb] |= bit
        else:
            of_nodes[room.source[e], la + limb] |= bit
            of_nodes[room.target[e], la + lr + limb] |= bit
    for i in range(room.used[SEEN]):
        word = room.seen[i]
        node = room.node_of[word]
        for s in range(words.near_start[word], words.near_start[word + 1]):
            c = words.near[s]
            if bits[c, 0] == 0:
                touched[count] = c
                count += 1
            bits[c, 0] |= NODE | _TOUCHED
            for k in range(la):
                bits[c, 1 + k] |= of_nodes[node, k]
            for k in range(2 * lr):
                bits[c, 1 + 2 * la + k] |= of_nodes[node, la + k]
    for m in range(room.used[RELATED]):
        word, e = room.member[m], room.member_of[m]
        column = 1 + la if room.target[e] < 0 else 1 + 2 * la + 2 * lr
        column += room.number[e] // LIMB
        bit = _ONE << np.uint64(room.number[e] % LIMB)
        for s in range(words.near_start[word], words.near_start[word + 1]):
            c = words.near[s]
            if bits[c, 0] == 0:
                touched[count] = c
                count += 1
            bits[c, 0] |= _TOUCHED
            bits[c, column] |= bit
    room.used[TOUCHED] = count


@jit
def matches(first: int, second: int, third: int, bits: U8, la: int, lr: int) -> bool:
    """Say whether a candidate's tuple of concepts (see Graphs) matches one of the references'.

    `bits`, `la` and `lr` are the room's, its limbs one by one: with the whole room a call takes longer than its work.
    """
    if bits[first, 0] == 0:
        return False
    if second < 0:
        return bool(bits[first, 0] & NODE != 0)
    if third < 0:
        for k in range(1, 1 + la):  # noqa: SIM110 - numba compiles no any(...)
            if bits[first, k] & bits[second, k + la] != 0:
                return True
        return False
    for k in range(1 + 2 * la, 1 + 2 * la + lr):
        if bits[first, k] & bits[second, k + lr] & bits[third, k + 2 * lr] != 0:
            return True
    return False


@jit
def clear_marks(room: Room) -> None:
    """Take all marks away."""
    bits = room.bits
    for i in range(room.used[TOUCHED]):
        for k in range(bits.shape[1]):
            bits[room.touched[i], k] = 0
    room.used[TOUCHED] = 0
