"""Encoding of meteor: shards of normalised captions, then METEOR's tables cut to the entries that they can use.

No score changes by the cut, and the jar starts and runs faster. The paraphrase table has 5.3 million entries, of which
a corpus of 25,000 captions can use 38,000: an entry matches only if one of its phrases occurs in one text and the other
in another. The WordNet table lists all synonym sets of a word. Only those matter that the word shares with another word
of the texts.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.runtime import Advance
from relabel.corpus import Corpus
from relabel.sources.meteor.jar import PARAPHRASES, normalise, paraphrase_table
from relabel.sources.shards import ShardTasks
from relabel.sources.wordnet import EXCEPTIONS, SYNSETS, find_base_form, find_meteor_jar, read_wordnet
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

LONGEST = 7
"""Words in the longest phrase of the paraphrase table."""

_BITS = 26  # of a phrase's hash: a table of 64 MiB
_BLOCK = 1 << 24  # bytes of the paraphrase table read at a time


def cut_paraphrases(table: Path, texts: Iterable[str], out: Path) -> int:
    """Write the entries of a paraphrase table that can match within a list of texts.

    `table`: gzip file with three lines per entry: probability, phrase, phrase. `texts`: normalised texts. `out`: gzip
    file with the kept entries, in their order. Equal texts give equal bytes. Returns int: number of kept entries.
    """
    # Phrases are looked up by hash. A collision keeps an entry that cannot match, which changes no score.
    seen = np.zeros(1 << _BITS, np.bool_)
    for text in texts:
        seen[_hashes(_phrases(text))] = True
    count = 0
    # A gzip header without name and time keeps the bytes reproducible.
    with out.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
        for lines in _blocks(table):
            both = seen[_hashes(lines[1::3])] & seen[_hashes(lines[2::3])]
            kept = np.flatnonzero(both)
            count += len(kept)
            file.writelines(b"%b\n%b\n%b\n" % tuple(lines[3 * i : 3 * i + 3]) for i in kept.tolist())
    return count


def cut_synonyms(jar: Path, texts: Iterable[str]) -> tuple[bytes, bytes]:
    """Make WordNet tables that give the words of the texts the same synonyms as the jar's own tables.

    METEOR treats two words as synonyms if they share a synonym set, where a word has its own sets and those of its base
    forms. The cut tables list the sets of the base forms under the word itself.

    `texts`: normalised texts. Returns `synsets, exceptions`: contents for `SYNSETS` and `EXCEPTIONS`.
    """
    # Invert the table: words of the texts by synonym set.
    sets, bases = read_wordnet(jar)
    words = sorted({word.decode() for text in texts for word in _words(text)})
    members: dict[str, list[str]] = defaultdict(list)
    for word in words:
        stems = bases.get(word) or [find_base_form(word, sets)]
        for synset in {s for form in (word, *stems) for s in sets.get(form, ())}:
            members[synset].append(word)
    chosen: dict[str, list[str]] = defaultdict(list)
    # Take the sets from the largest to the smallest, and skip a set all of whose pairs are synonyms already.
    covered: set[tuple[str, str]] = set()
    for synset in sorted(members, key=lambda s: (-len(members[s]), s)):
        group = members[synset]
        pairs = {(a, b) for i, a in enumerate(group) for b in group[i + 1 :]}
        if not pairs <= covered:
            covered |= pairs
            for word in group:
                chosen[word].append(synset)
    lines = [f"{word}\n{' '.join(chosen[word])}\n" for word in words if word in chosen]
    # Every word gets one exceptional base form, " ", which has no set. METEOR then derives no other base form.
    return "".join(lines).encode(), f" \n{' '.join(words)}\n".encode()


def _words(text: str) -> list[bytes]:
    """Split a text into lower-case words."""
    return text.lower().encode("utf-8", "replace").split()  # at ASCII white space alone, as Java does


def _phrases(text: str) -> list[bytes]:
    """Return all phrases of a text that the table may contain."""
    words = _words(text)
    return [b" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, min(i + LONGEST, len(words)) + 1)]


def _hashes(phrases: Sequence[bytes]) -> NDArray[np.uint32]:
    """Hash phrases to `_BITS` bits."""
    return np.fromiter(map(zlib.crc32, phrases), np.uint32, len(phrases)) & np.uint32((1 << _BITS) - 1)


def _blocks(table: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a table in blocks of complete entries."""
    rest, lines = b"", []
    with gzip.open(table) as file, ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(file.read, _BLOCK)
        while data := coming.result():
            coming = ahead.submit(file.read, _BLOCK)  # the next block is inflated while this one is processed
            *more, rest = (rest + data).split(b"\n")
            lines += more
            complete = len(lines) - len(lines) % 3
            yield lines[:complete]
            lines = lines[complete:]
    if rest:  # the last line may lack its line feed
        yield [*lines, rest]


class MeteorTasks(ShardTasks):
    """Work on one encoding of meteor.

    `corpus`, `rows`, `rows_per_shard`: see ShardTasks. `silence`: seconds without an answer after which Java is
    considered hung.
    """

    title = "METEOR's words"
    derived_files: ClassVar[tuple[str, ...]] = (PARAPHRASES, SYNSETS, EXCEPTIONS)

    def __init__(self, corpus: Corpus, rows: range, rows_per_shard: int, language: str, silence: float) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.language, self.silence = language, silence
        self._distinct: list[str] | None = None
        self._tables: MeteorTables | None = None

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make one shard: row int32, words string."""
        words = normalise(self.corpus.ptb_tokens()[rows.start : rows.stop], self.language, self.silence)
        row = np.arange(rows.start, rows.stop, dtype=np.int32)
        return pa.table({"row": row, "words": pa.array(words, pa.string())})

    @override
    def after_shards(self, work: Work) -> Iterator[TaskGroup]:
        yield TaskGroup("METEOR's tables", "files", [Task(name, 1) for name in self.derived_files])

    @override
    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        if task.file not in self.derived_files:
            return super().make_other(work, task, advance)
        if self._tables is None:  # two of the tables are cut together, so the object is kept
            self._tables = MeteorTables(self.language, self.texts(work))
        tables = self._tables
        return work.file(task.file, lambda path: tables.write(task.file, path))

    @override
    def finish(self, work: Work) -> None:
        super().finish(work)
        work.facts |= {"tokenizer": "ptb", "texts": len(self.texts(work))}

    def texts(self, work: Work) -> list[str]:
        """Return the distinct texts of all shards, in order."""
        if self._distinct is None:
            columns = self.read_column(work, "words")
            self._distinct = list(dict.fromkeys(text for column in columns for text in column.to_pylist()))
        return self._distinct


class MeteorTables:
    """METEOR's tables, cut to the entries that can match within a list of texts.

    `texts`: normalised texts.
    """

    def __init__(self, language: str, texts: list[str]) -> None:
        self.language, self.texts = language, texts

    def write(self, name: str, path: Path) -> None:
        """Write the table of this name."""
        if name == PARAPHRASES:
            cut_paraphrases(paraphrase_table(self.language), self.texts, path)
        else:
            path.write_bytes(self._synonyms[0 if name == SYNSETS else 1])

    def write_all(self, folder: Path) -> None:
        """Write every table under its own name."""
        for name in (PARAPHRASES, SYNSETS, EXCEPTIONS):
            self.write(name, folder / name)

    @cached_property
    def _synonyms(self) -> tuple[bytes, bytes]:
        """Contents of the two WordNet tables."""
        return cut_synonyms(find_meteor_jar(), self.texts)
