"""METEOR's tables cut to what some texts can use: no score changes, and the jar starts in no time and runs faster.

The paraphrase table has 5.3 million entries, of which a corpus of 25,000 captions can use 38,000: an entry matches only
where one of its phrases occurs in one text and the other in another. The WordNet table lists all synonym sets of a
word, of which only those count that it shares with another word of the texts.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relabel.sources.wordnet import find_base_form, read_wordnet

LONGEST = 7
"""Words in the longest phrase of the paraphrase table."""

_BITS = 26
_BLOCK = 1 << 24  # bytes of the paraphrase table looked at at once


def cut_paraphrases(table: Path, texts: Iterable[str], out: Path) -> int:
    """Write the entries of a paraphrase table that can match within some texts.

    An entry is kept if both its phrases may occur: words are looked up by hash, and one kept in error changes no score.

    Parameters
    ----------
    table : Path
        gzip; three lines an entry: probability, phrase, phrase.
    texts : iterable of str
        Normalised texts.
    out : Path
        gzip; the same bytes for the same texts.

    Returns
    -------
    int
        Entries kept, in their order.
    """
    seen = np.zeros(1 << _BITS, np.bool_)
    for text in texts:
        seen[_hashes(_phrases(text))] = True
    kept = 0
    with out.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
        for lines in _blocks(table):
            both = seen[_hashes(lines[1::3])] & seen[_hashes(lines[2::3])]
            found = np.flatnonzero(both)
            kept += len(found)
            file.writelines(b"%b\n%b\n%b\n" % tuple(lines[3 * i : 3 * i + 3]) for i in found.tolist())
    return kept


def cut_synonyms(jar: Path, texts: Iterable[str]) -> tuple[bytes, bytes]:
    """Make WordNet tables under which the same words of some texts are synonyms as under the jar's own.

    METEOR takes two different words for synonyms if their synonym sets, those of their base forms included, share one.
    Here every word has its base forms' sets as its own, only sets are kept that make some pair of words synonyms which
    no other does, and every word has an exceptional base form without any set, so that METEOR looks no further.

    Parameters
    ----------
    jar : Path
    texts : iterable of str
        Normalised texts.

    Returns
    -------
    synsets, exceptions : bytes
        Contents for `SYNSETS` and `EXCEPTIONS`.
    """
    sets, bases = read_wordnet(jar)
    words = sorted({word.decode() for text in texts for word in _words(text)})
    members: dict[str, list[str]] = defaultdict(list)
    for word in words:
        stems = bases.get(word) or [find_base_form(word, sets)]
        for synset in {s for form in (word, *stems) for s in sets.get(form, ())}:
            members[synset].append(word)
    kept: dict[str, list[str]] = defaultdict(list)
    covered: set[tuple[str, str]] = set()
    for synset in sorted(members, key=lambda s: (-len(members[s]), s)):
        group = members[synset]
        pairs = {(a, b) for i, a in enumerate(group) for b in group[i + 1 :]}
        if not pairs <= covered:
            covered |= pairs
            for word in group:
                kept[word].append(synset)
    lines = [f"{word}\n{' '.join(kept[word])}\n" for word in words if word in kept]
    return "".join(lines).encode(), f" \n{' '.join(words)}\n".encode()


def _words(text: str) -> list[bytes]:
    return text.lower().encode("utf-8", "replace").split()  # at ASCII white space alone, as Java does


def _phrases(text: str) -> list[bytes]:
    words = _words(text)
    return [b" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, min(i + LONGEST, len(words)) + 1)]


def _hashes(phrases: Sequence[bytes]) -> NDArray[np.uint32]:
    return np.fromiter(map(zlib.crc32, phrases), np.uint32, len(phrases)) & np.uint32((1 << _BITS) - 1)


def _blocks(table: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a table in whole entries."""
    rest, lines = b"", []
    with gzip.open(table) as file, ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(file.read, _BLOCK)
        while data := coming.result():
            coming = ahead.submit(file.read, _BLOCK)  # inflated while this block is looked at
            *more, rest = (rest + data).split(b"\n")
            lines += more
            whole = len(lines) - len(lines) % 3
            yield lines[:whole]
            lines = lines[whole:]
    if rest:
        yield [*lines, rest]
