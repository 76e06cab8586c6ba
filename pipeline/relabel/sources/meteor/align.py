"""METEOR scores of pairs of captions, compiled: the alignment of words and its score.

Denkowski and Lavie, WMT 2014, with the parameters of the task `rank`; Lavie and Denkowski: "The METEOR metric for
automatic evaluation of machine translation", Machine Translation 23, 2009. Rules that the papers do not specify were
derived from METEOR's output for test sentences:

1. A beam search runs over the words of the reference. A match that does not share words with other matches is always
   selected.
2. Two different words can match both by stem and as synonyms, and two phrases can be paraphrases in both directions.
   These count as two matches.
3. Matches at a word are tried by module, and within a module by their position in the candidate. Paraphrases of the
   reference's phrases come before those of the candidate's, sorted by start and length of the phrase, and line of the
   table.
4. Partial alignments are ranked by descending weight, then by number of closed chunks, then by distance; ties keep
   their order. The weight of a match of equal words is 2; that of other matches is the sum over both sides of half the
   number of words, rounded down.
5. A match adds its distance, the difference of the two positions, to all options that are tried after it at the same
   word, but not to the alignment that selects it.
6. There is no penalty if all words of both texts match in one chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.sources.meteor.hashing import I4, I8, U8, bit_of, find, pair_key
from relabel.sources.meteor.jar import LONGEST
from relabel.sources.meteor.tables import Partners, Tables

F8 = NDArray[np.float64]
Table = NDArray[np.int32]
_BEAM = 40  # beam size
_EXACT, _STEM, _SYNONYM, _PARAPHRASE = range(4)
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # weights of the modules
_ALPHA, _BETA, _GAMMA = 0.85, 0.2, 0.6
# Fields of a rank from the highest bits: a constant minus the weight, closed chunks, distance.
_WORST, _WEIGHT, _CHUNK = 2 * LONGEST << 50, 1 << 50, 1 << 38
_MATCHES = 256  # initial capacity for matches
_SPAN, _START, _WIDTH, _MODULE, _LINE = range(5)  # columns of `Buffers.matches`
_NUMBER, _FIRST, _LENGTH = range(3)  # columns of `Tables.phrases`


class Buffers(NamedTuple):
    """Buffers for the alignment of two texts. Arrays of size 2 alternate between consecutive words of the reference.

    `matches`: (M, 5) int32; number of words of the reference, first word and number of words of the candidate, module,
        and line of the table of paraphrases.
    `first`: first match at each word of the reference, and the number of matches.
    `covered`: (2, words) int32; number of matches that cover each word of the reference and of the candidate.
    `rank`, `slot`: (2, BEAM) int64 and int32; the best alignments in order.
    `end`, `next`: (2, BEAM) int32; by slot, end of the last match in the candidate, or -1 if the last word was skipped,
        and the next word of the reference.
    `used`: (2, BEAM, W) uint64; by slot, a bit for each used word of the candidate.
    `trace`: (words of the reference, BEAM, 2) int32; by word and slot, the previous slot, and the match or -1.
    """

    matches: Table
    first: I4
    covered: Table
    rank: I8
    slot: Table
    end: Table
    next: Table
    used: U8
    trace: NDArray[np.int32]

    @classmethod
    def allocate(cls, words: int, matches: int = _MATCHES) -> Buffers:
        """Allocate buffers for texts of up to `words` words."""
        slots = np.array([range(_BEAM)] * 2, np.int32)
        end, following = np.empty((2, 2, _BEAM), np.int32)
        used, trace = np.empty((2, _BEAM, words // 64 + 1), np.uint64), np.empty((words, _BEAM, 2), np.int32)
        columns, first = np.empty((matches, 5), np.int32), np.empty(words + 1, np.int32)
        covered, rank = np.empty((2, words), np.int32), np.empty((2, _BEAM), np.int64)
        return cls(columns, first, covered, rank, slots, end, following, used, trace)


@jit
def score_pairs(references: I4, captions: I4, tables: Tables, buffers: Buffers, out: F8) -> int:
    """Fill `out`, (P,), with the scores of pairs of texts, given by number; NaN if a text is too long.

    Returns P, or the index of the first pair with more matches than the buffers can hold.
    """
    indptr, places = tables.indptr, tables.occurrences
    for p in range(len(captions)):
        r, c = references[p], captions[p]
        words, others = tables.words[indptr[r] : indptr[r + 1]], tables.words[indptr[c] : indptr[c + 1]]
        phrases, other_phrases = tables.phrases[places[r] : places[r + 1]], tables.phrases[places[c] : places[c + 1]]
        if max(len(words), len(others)) > LONGEST:
            out[p] = np.nan
            continue
        if _list_matches(words, others, phrases, other_phrases, tables, buffers) > len(buffers.matches):
            return p
        slot, chunks = _align(len(words), len(others), buffers)
        mass, own_mass, matched = _count_words(words, others, slot, tables.share, buffers)
        chunks = 0 if chunks == 1 and matched == len(words) + len(others) else chunks
        out[p] = 0.0 if matched == 0 else _score(mass / tables.mass[c], own_mass / tables.mass[r], chunks / matched)
    return len(captions)


@jit
def _list_matches(words: I4, others: I4, phrases: Table, other_phrases: Table, tables: Tables, buffers: Buffers) -> int:
    """List the matches of a pair by word of the reference, in the order in which they are tried.

    Returns their number. If it is greater than ``len(buffers.matches)``, the list is incomplete.
    """
    matches, first, covered = buffers[:3]
    stem, (synonyms, bits), paraphrases = tables.stem, tables.synonyms, tables.paraphrases
    covered[:] = 0
    n, stop = 0, 0
    for i in range(len(words)):
        first[i] = n
        word, near = words[i], bits[words[i]]
        for j in range(len(others)):
            if others[j] == word:
                n = _add(matches, n, n, 0, 1, j, 1, _EXACT)
        for j in range(len(others)):
            if stem[others[j]] == stem[word] and others[j] != word:
                n = _add(matches, n, n, 0, 1, j, 1, _STEM)
        for j in range(len(others)):
            if near & bit_of(others[j]) and find(synonyms, pair_key(word, others[j])) >= 0:
                n = _add(matches, n, n, 0, 1, j, 1, _SYNONYM)
        begin = stop
        while stop < len(phrases) and phrases[stop, _FIRST] == i:
            stop += 1
        if begin < stop:
            n = _match_phrases(phrases[begin:stop], other_phrases, True, paraphrases, matches, n)
            n = _match_phrases(phrases[begin:stop], other_phrases, False, paraphrases, matches, n)
        if n > len(matches):
            return n
        for m in range(first[i], n):
            for k in range(matches[m, _SPAN]):
                covered[0, i + k] += 1
            for k in range(matches[m, _WIDTH]):
                covered[1, matches[m, _START] + k] += 1
    first[len(words)] = n
    return n


@jit
def _match_phrases(own: Table, others: Table, forward: bool, table: Partners, matches: Table, n: int) -> int:
    """Add the matches of phrases at a word of the reference, `own`, with phrases of the candidate, `others`.

    `forward`: True for `others` as paraphrases of `own`, False for the reverse. Returns the number of matches.
    """
    outer, inner = (own, others) if forward else (others, own)
    inner_bits = np.uint64(0)
    for b in range(len(inner)):
        inner_bits |= bit_of(inner[b, _NUMBER])
    for a in range(len(outer)):
        bits, start = table.bits[outer[a, _NUMBER]], n
        for b in range(len(inner) if bits & inner_bits else 0):
            if not bits & bit_of(inner[b, _NUMBER]):
                continue
            line = find(table.pairs, pair_key(outer[a, _NUMBER], inner[b, _NUMBER]))
            if line >= 0:
                r, c = (a, b) if forward else (b, a)
                n = _add(matches, start, n, line, own[r, _LENGTH], others[c, _FIRST], others[c, _LENGTH], _PARAPHRASE)
    return n


@jit
def _add(matches: Table, first: int, n: int, line: int, span: int, start: int, width: int, module: int) -> int:
    """Insert a match, sorted by line of the table from match `first` on. Returns the number of matches."""
    if n < len(matches):
        at = n
        while at > first and matches[at - 1, _LINE] > line:
            matches[at] = matches[at - 1]
            at -= 1
        matches[at, _SPAN], matches[at, _START], matches[at, _WIDTH] = span, start, width
        matches[at, _MODULE], matches[at, _LINE] = module, line
    return n + 1


@jit
def _align(words: int, others: int, buffers: Buffers) -> tuple[int, int]:
    """Find the best alignment. Returns its slot after the last word, and its number of chunks."""
    matches, first, covered, ranks, slots, ends, following, used, trace = buffers
    masks, size = others // 64 + 1, 1
    slot = slots[0, 0]
    ranks[0, 0], ends[0, slot], following[0, slot] = _WORST, -1, 0
    used[0, slot, :masks] = 0
    for i in range(words):
        old, new, kept = i & 1, 1 - (i & 1), 0
        a, b = first[i], first[i + 1]
        forced = False  # the only match, and it does not share words with others
        if b == a + 1:
            left, right = covered[0, i : i + matches[a, _SPAN]], covered[1, matches[a, _START] :][: matches[a, _WIDTH]]
            forced = left.sum() + right.sum() == len(left) + len(right)
        for place in range(size):
            rank, slot = ranks[old, place], slots[old, place]
            end, after = ends[old, slot], following[old, slot]
            tried = a if after > i else b
            # The last option is to skip the word, unless an earlier match covers it.
            for m in range(a, tried + 1):
                if m < tried:
                    start, stop, to = matches[m, _START], matches[m, _START] + matches[m, _WIDTH], i + matches[m, _SPAN]
                    if not _is_free(used, old, slot, start, stop):
                        continue
                    weight = 2 if matches[m, _MODULE] == _EXACT else (to - i) // 2 + (stop - start) // 2
                    better = _close(rank, end, start) - weight * _WEIGHT
                    rank += abs(i - start)
                elif after > i:
                    start, stop, to, better = end, end, after, rank
                elif forced:
                    continue
                else:
                    start, stop, to, better = -1, -1, i + 1, _close(rank, end, -1)
                s = _insert(ranks, slots, new, kept, better)
                if s >= 0:
                    kept = min(kept + 1, _BEAM)
                    ends[new, s], following[new, s] = stop, to
                    trace[i, s, 0], trace[i, s, 1] = slot, m if m < tried else -1
                    for mask in range(masks):
                        used[new, s, mask] = used[old, slot, mask]
                    for j in range(start, stop):
                        used[new, s, j >> 6] |= np.uint64(1) << np.uint64(j & 63)
        size = kept
    last, best, slot = words & 1, _WORST, 0
    for place in range(size):
        rank = _close(ranks[last, place], ends[last, slots[last, place]], -1)
        if rank < best or place == 0:
            best, slot = rank, slots[last, place]
    return slot, (best // _CHUNK) % (_WEIGHT // _CHUNK)


@jit
def _insert(ranks: I8, slots: Table, beam: int, size: int, rank: int) -> int:
    """Insert a rank after equal ranks if it is among the best. Returns its slot, or -1."""
    if size == _BEAM:
        if rank >= ranks[beam, size - 1]:
            return -1
        size -= 1
    slot = slots[beam, size]
    while size > 0 and ranks[beam, size - 1] > rank:
        ranks[beam, size], slots[beam, size] = ranks[beam, size - 1], slots[beam, size - 1]
        size -= 1
    ranks[beam, size], slots[beam, size] = rank, slot
    return int(slot)


@jit
def _is_free(used: U8, beam: int, slot: int, start: int, stop: int) -> bool:
    taken = np.uint64(0)
    for j in range(start, stop):
        taken |= used[beam, slot, j >> 6] >> np.uint64(j & 63)
    return not taken & np.uint64(1)


@jit
def _close(rank: int, end: int, start: int) -> int:
    """Return a rank with one more chunk, unless the match at `start` continues the chunk that ends at `end` (or -1)."""
    return rank + _CHUNK if end != -1 and end != start else rank


@jit
def _count_words(words: I4, others: I4, slot: int, share: F8, buffers: Buffers) -> tuple[float, float, int]:
    """Follow the alignment back from its last slot. Returns its mass in both texts, and the number of words."""
    matches, trace = buffers.matches, buffers.trace
    mass, own_mass, matched = 0.0, 0.0, 0
    for i in range(len(words) - 1, -1, -1):
        slot, m = trace[i, slot, 0], trace[i, slot, 1]
        if m >= 0:
            span, start, width, weight = matches[m, _SPAN], matches[m, _START], matches[m, _WIDTH], matches[m, _MODULE]
            for j in range(start, start + width):
                mass += _WEIGHTS[weight] * share[others[j]]
            for k in range(i, i + span):
                own_mass += _WEIGHTS[weight] * share[words[k]]
            matched += span + width
    return mass, own_mass, matched


@jit
def _score(precision: float, recall: float, fragments: float) -> float:
    """Compute the score. `fragments`: chunks per matched word of both texts, or 0 for no penalty."""
    mean = precision * recall / (_ALPHA * precision + (1 - _ALPHA) * recall)
    return float(mean * (1 - _GAMMA * (2.0 * fragments) ** _BETA))
