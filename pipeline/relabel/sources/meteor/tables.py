"""METEOR's tables for the words of a corpus: stems, function words, synonyms and paraphrases.

An encoding stores the tables as Parquet files. `Tables.of` converts them to the arrays of the kernels:

- `words.parquet`: word and stem (string), function (bool: whether it is a function word)
- `synonyms.parquet`: word, synonym (int32, rows of words)
- `paraphrases.parquet`: phrase, paraphrase (int32, numbers of phrases), in the order of METEOR's table
- `texts.parquet`: words and phrases (list<int32>) of each caption; phrases has number, start and length of each
  occurrence of a phrase, sorted by start and length
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of, owners, ranges
from relabel.sources.meteor.hashing import I4, I8, LONGEST_PHRASE, U8, HashTable, bits_of, find_phrases, hash_lines
from relabel.sources.meteor.jar import paraphrase_file
from relabel.sources.wordnet import find_meteor_jar, find_synsets, read_wordnet
from relabel.sources.words.shards import WordBags
from relabel.store.manifest import combine_chunks, view_column

WORDS, SYNONYMS, PARAPHRASES, TEXTS = (f"{name}.parquet" for name in ("words", "synonyms", "paraphrases", "texts"))
DELTA = 0.75
"""Weight of content words. Function words have the weight 1 - DELTA."""
Stem = Callable[[Sequence[str]], list[str]]
_BLOCK = 1 << 24  # bytes per read of METEOR's table
_LETTERS = 6  # minimum size of an entry in bytes: a digit and two letters on one line each


class Partners(NamedTuple):
    """Pairs of numbers of synonyms or of paraphrases.

    `pairs`: position of each pair in the table, by the number of the pair (see `pair_key`).
    `bits`: for each number, the bits of its partners (see `bit_of`).
    """

    pairs: HashTable
    bits: U8

    @classmethod
    def of(cls, table: pa.Table, count: int) -> Partners:
        """Create from a table with two columns of numbers below `count`."""
        left, right = (view_column(column) for column in table.columns)
        bits = np.zeros(count, np.uint64)
        bits_of(left, right, bits)
        return cls(
            HashTable.of((left.astype(np.uint64) << np.uint64(32)) + right.astype(np.uint64) + np.uint64(1)), bits
        )


class Tables(NamedTuple):
    """N texts of T words, V of them distinct, with O occurrences of phrases that have a paraphrase.

    `indptr`, `words`: (N + 1,) int64 and (T,) int32; text n has the words ``words[indptr[n]:indptr[n + 1]]``.
    `stem`, `share`: (V,) int32 and float64; number of each word's stem, and weight of the word.
    `mass`: (N,) float64; sum of the weights of each text.
    `synonyms`: pairs of words.
    `occurrences`, `phrases`: (N + 1,) int64 and (O, 3) int32; number, start and length of each phrase of a text.
    `paraphrases`: pairs of phrases.
    """

    indptr: I8
    words: I4
    stem: I4
    share: NDArray[np.float64]
    mass: NDArray[np.float64]
    synonyms: Partners
    occurrences: I8
    phrases: NDArray[np.int32]
    paraphrases: Partners

    @classmethod
    def of(cls, read: Callable[[str], pa.Table]) -> Tables:
        """Create the arrays from the four tables. `read`: returns a table by name."""
        words, texts, paraphrases = read(WORDS), read(TEXTS), read(PARAPHRASES)
        (indptr, numbers), (bounds, phrases) = (_rows(texts[name]) for name in ("words", "phrases"))
        # Sums are exact, because weights are multiples of a quarter.
        share = np.where(words["function"].to_numpy(), 1 - DELTA, DELTA)
        return cls(
            indptr=indptr,
            words=numbers,
            stem=view_column(combine_chunks(words["stem"]).dictionary_encode().indices),
            share=share,
            mass=np.diff(np.append(0.0, np.cumsum(share[numbers]))[indptr]),
            synonyms=Partners.of(read(SYNONYMS), len(words)),
            occurrences=bounds // 3,
            phrases=phrases.reshape(-1, 3),
            paraphrases=Partners.of(paraphrases, 1 + int(view_column(paraphrases["phrase"]).max(initial=-1))),
        )


@lru_cache(maxsize=1)
def read_paraphrases(path: Path) -> tuple[U8, I8, U8]:
    """Read METEOR's table of paraphrases, in which all paraphrases of a phrase are consecutive. The result is cached.

    Returns hashes: `phrases`, (P,) uint64, distinct; `indptr` and `paraphrases`, (P + 1,) int64 and (Q,) uint64. The
    paraphrases of phrase p are ``paraphrases[indptr[p]:indptr[p + 1]]``, in the order of the file.
    """
    chunks, rest = list[U8](), b""
    with gzip.open(path) as file:
        while block := file.read(_BLOCK):
            text = rest + block
            hashes = np.empty((2, len(text) // _LETTERS), np.uint64)
            count, done = hash_lines(np.frombuffer(text, np.uint8), *hashes)
            chunks.append(hashes[:, :count].copy())
            rest = text[done:]
    left, right = np.concatenate(chunks, axis=1)
    starts = np.flatnonzero(np.append(True, left[1:] != left[:-1]))
    return left[starts], np.append(starts, len(left)), right


def make_tables(texts: Callable[[], list[str]], stem: Stem) -> dict[str, Callable[[], pa.Table]]:
    """Return the functions that create the tables of texts, by name.

    `texts`: returns normalised texts, with single spaces between words. `stem`: returns the stems of words.
    """
    bags = cache(lambda: WordBags.from_texts(texts()))
    phrases = cache(lambda: _phrases_of(bags()))
    return {
        WORDS: lambda: _words_table(bags().vocabulary, stem),
        SYNONYMS: lambda: _synonyms_table(bags().vocabulary),
        PARAPHRASES: lambda: phrases()[0],
        TEXTS: lambda: phrases()[1].take(pa.array(bags().text_of)),
    }


def _words_table(words: Sequence[str], stem: Stem) -> pa.Table:
    with ZipFile(find_meteor_jar()) as jar:
        listed = pa.array(jar.read("function/english.words").decode().split())
    word, stems = (pa.array(values, pa.string()) for values in (words, stem(words)))
    return pa.table({"word": word, "stem": stems, "function": pc.is_in(word, value_set=listed)})


def _synonyms_table(words: Sequence[str]) -> pa.Table:
    """Return the sorted pairs of different words that share a synonym set."""
    sets, bases = read_wordnet(find_meteor_jar())
    members: dict[str, list[int]] = {}
    for number, word in enumerate(words):
        for synset in find_synsets(word, sets, bases):
            members.setdefault(synset, []).append(number)
    pairs = sorted({(a, b) for group in members.values() for a in group for b in group if a != b})
    left, right = np.array(pairs, np.int32).reshape(-1, 2).T
    return pa.table({"word": left, "synonym": right})


def _phrases_of(bags: WordBags) -> tuple[pa.Table, pa.Table]:
    """Return the pairs of paraphrases that both occur in the texts, and the words and phrases of distinct texts."""
    hashes = _hash(bags.vocabulary)

    def places(phrases: U8) -> NDArray[np.int32]:
        out = np.full((len(bags.words), LONGEST_PHRASE), -1, np.int32)
        find_phrases(bags.indptr, bags.words, hashes, HashTable.of(phrases), out)
        return out

    def occur(phrases: U8) -> NDArray[np.bool_]:
        return np.bincount(places(phrases).ravel() + 1, minlength=len(phrases) + 1)[1:] > 0

    phrases, starts, paraphrases = read_paraphrases(paraphrase_file())
    present = np.flatnonzero(occur(phrases))
    sizes = np.diff(starts)[present]
    pairs = np.stack([np.repeat(phrases[present], sizes), paraphrases[ranges(starts[present], sizes)]])
    distinct, inverse = np.unique(pairs[1], return_inverse=True)
    phrases, numbers = np.unique(pairs[:, occur(distinct)[inverse]], return_inverse=True)
    left, right = numbers.reshape(2, -1).astype(np.int32)
    number_at = places(phrases)
    word, length = np.nonzero(number_at >= 0)
    text = owners(bags.indptr)[word]
    occurrences = np.stack([number_at[word, length], word - bags.indptr[text], length + 1], axis=1)
    indptr = 3 * indptr_of(np.bincount(text, minlength=len(bags.indptr) - 1))
    lists = {"words": _lists(bags.indptr, bags.words), "phrases": _lists(indptr, occurrences.ravel())}
    return pa.table({"phrase": left, "paraphrase": right}), pa.table(lists)


def _lists(indptr: I8, values: NDArray[np.integer]) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(indptr.astype(np.int32)), pa.array(values.astype(np.int32)))


def _rows(lists: pa.ChunkedArray) -> tuple[I8, I4]:
    """Return the row pointers and the values of lists."""
    return indptr_of(view_column(pc.list_value_length(lists))), view_column(pc.list_flatten(combine_chunks(lists)))


def _hash(words: Sequence[str]) -> U8:
    """Hash words: (V,) uint64."""
    # Written as entries of METEOR's table with phrases of one word.
    entries = "".join(f"\n{word}\n\n" for word in words).encode()
    hashes, paraphrases = np.empty(len(words), np.uint64), np.empty(len(words), np.uint64)
    hash_lines(np.frombuffer(entries, np.uint8), hashes, paraphrases)
    return hashes
