"""Compiled hash tables of 64-bit numbers, and hashes of phrases.

A phrase is identified by a hash of its words. For 20 million phrases, the probability of a collision is 1e-5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U1 = NDArray[np.uint8]
U8 = NDArray[np.uint64]
LONGEST_PHRASE = 7
"""Maximum number of words of a phrase in METEOR's table of paraphrases."""
_START, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # constants of the hash function FNV-1a
_GOLDEN, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_NEWLINE, _SPACE = 10, 32


class HashTable(NamedTuple):
    """Positions by number. `keys`: (S,) uint64, S a power of 2; 0 in empty slots. `places`: (S,) int32."""

    keys: U8
    places: I4

    @classmethod
    def of(cls, keys: U8) -> HashTable:
        """Create a table from an array of non-zero numbers, (K,), with the first position of each number."""
        size = 1 << (2 * len(keys) | 7).bit_length()
        table = cls(np.zeros(size, np.uint64), np.empty(size, np.int32))
        _fill(table, keys)
        return table


@jit
def find(table: HashTable, key: np.uint64) -> int:
    """Return the position of a number, or -1 if it is not in the table."""
    at = _slot(table, key)
    return int(table.places[at]) if table.keys[at] == key else -1


@jit
def pair_key(left: int, right: int) -> np.uint64:
    """Return the non-zero number of a pair of int32."""
    return (np.uint64(left) << np.uint64(32)) + np.uint64(right) + np.uint64(1)


@jit
def bit_of(number: int) -> np.uint64:
    """Return one of 64 bits for a number, for a Bloom filter of sets of numbers."""
    return np.uint64(1) << ((np.uint64(number) * _GOLDEN) >> np.uint64(58))


@jit
def bits_of(owners: I4, partners: I4, out: U8) -> None:
    """Set the bits of each owner's partners in `out`, (owners,)."""
    for n in range(len(owners)):
        out[owners[n]] |= bit_of(partners[n])


@jit
def hash_lines(text: U1, phrases: U8, paraphrases: U8) -> tuple[int, int]:
    """Hash the phrases of METEOR's table. An entry has three lines: probability, phrase and paraphrase.

    `text`: UTF-8 bytes. Returns the number of complete entries, and the number of their bytes.
    """
    count, line, done, word, phrase = 0, 0, 0, _START, np.uint64(0)
    for at in range(len(text)):
        if text[at] != _SPACE and text[at] != _NEWLINE:
            word = (word ^ np.uint64(text[at])) * _PRIME
            continue
        phrase, word = phrase * _GOLDEN + word, _START
        if text[at] == _NEWLINE:
            if line == 1:
                phrases[count] = phrase
            elif line == 2:
                paraphrases[count] = phrase
                count, done = count + 1, at + 1
            line, phrase = (line + 1) % 3, np.uint64(0)
    return count, done


@jit
def find_phrases(indptr: I8, words: I4, hashes: U8, table: HashTable, out: NDArray[np.int32]) -> None:
    """Fill `out`, (T, LONGEST_PHRASE), with the position of the phrase of each length that starts at each word.

    `indptr`, `words`: T words of texts, as numbers. `hashes`: (V,) hashes of the words.
    """
    for text in range(len(indptr) - 1):
        for t in range(indptr[text], indptr[text + 1]):
            phrase = np.uint64(0)
            for k in range(min(LONGEST_PHRASE, indptr[text + 1] - t)):
                phrase = phrase * _GOLDEN + hashes[words[t + k]]
                out[t, k] = find(table, phrase)


@jit
def _slot(table: HashTable, key: np.uint64) -> np.uint64:
    """Return the slot of a number, or the empty slot for inserting it."""
    last = np.uint64(len(table.keys) - 1)
    mixed = (key ^ (key >> np.uint64(29))) * _MIX
    at = (mixed ^ (mixed >> np.uint64(32))) & last
    while table.keys[at] != np.uint64(0) and table.keys[at] != key:
        at = (at + np.uint64(1)) & last
    return at


@jit
def _fill(table: HashTable, keys: U8) -> None:
    for n in range(len(keys)):
        at = _slot(table, keys[n])
        if table.keys[at] == np.uint64(0):
            table.keys[at], table.places[at] = keys[n], n
