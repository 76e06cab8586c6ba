"""Encoding of spice: distinct captions parsed chunk by chunk, then the shards, then the words of their tuples.

A chunk is one task, so a killed run loses less than a minute and workers share the chunks of all shards. Chunks are not
part of the finished encoding. Where a shard is made again, its texts are in the cache (`parse_cache`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.numeric.csr import indptr_of
from relabel.core.runtime import Progress
from relabel.sources.shards import FAILED, Shards, mark_failed
from relabel.sources.spice.parser import Parsed, ParseFailure
from relabel.sources.wordnet import find_base_form, find_meteor_jar, read_wordnet
from relabel.store.workdir import Step, Steps, Work, table_task

CHUNK = 500
"""Captions per chunk: ten seconds of an idle core."""
TUPLES = pa.list_(pa.list_(pa.string()))
"""(object), (object, attribute) or (subject, object, relation), in the parser's order, duplicates included."""
WORDS = "words.parquet"
"""File of all words and their synonym sets (see `words_table`), so that an encoding is read without METEOR's jar."""

_CHUNK = re.compile(r"chunk-(\d{5,})-\d{5,}\.parquet")
_TRIMMED = "".join(map(chr, range(33)))  # characters that Java's `trim` removes


class CaptionParser(Protocol):
    """Parser of captions, such as SpiceParser."""

    def parse(self, texts: list[str], advance: Callable[[int], None]) -> list[Parsed]:
        """Parse captions, in order."""
        ...


@dataclass(frozen=True)
class _ChunkPlan:
    """The work on one shard.

    `chunks`: texts of each chunk, by file name.
    `text_of`: (n,) int64; number of each caption's text among the distinct texts of the shard.
    """

    chunks: dict[str, list[str]]
    text_of: NDArray[np.int64]


def encoding_steps(
    shards: Shards, read: Callable[[], list[str]], parser: CaptionParser, work: Work, progress: Progress
) -> Steps:
    """Parse distinct captions chunk by chunk, and make the shards (row int32, tuples of type `TUPLES`) and `WORDS`.

    A caption that crashes the parser, that it refuses or that takes it too long is a failed row, and its tuples are
    null.

    `read`: returns the text of every corpus row. The parser reads it with collapsed white space (see `collapsed`).
    """

    @cache
    def plan(rows: range) -> _ChunkPlan:
        """Cut the distinct texts of a shard into chunks."""
        texts, numbers = read(), dict[str, int]()
        text_of = [numbers.setdefault(collapsed(texts[row]), len(numbers)) for row in rows]
        distinct, shard = list(numbers), list(shards.files.values()).index(rows)
        starts = range(0, len(distinct), CHUNK)
        chunks = {f"chunk-{shard:05d}-{i:05d}.parquet": distinct[a : a + CHUNK] for i, a in enumerate(starts)}
        return _ChunkPlan(chunks, np.array(text_of, np.int64))

    def parse(texts: list[str]) -> pa.Table:
        return _chunk_table(parser.parse(texts, progress.advance))

    def make_shard(rows: range) -> pa.Table:
        distinct = pa.concat_tables([pq.read_table(work.folder / chunk) for chunk in plan(rows).chunks])
        table = distinct.take(pa.array(plan(rows).text_of))
        row = pa.array(np.arange(rows.start, rows.stop, dtype=np.int32))
        reasons = {i: reason for i, reason in enumerate(table[FAILED].to_pylist()) if reason is not None}
        return mark_failed(pa.table({"row": row, "tuples": table["tuples"].combine_chunks()}), reasons)

    def make_words() -> pa.Table:
        words: set[str] = set()
        for column in shards.read_column(work, "tuples"):
            words.update(pc.unique(spelled(column)[2]).to_pylist())
        return words_table(words, find_meteor_jar())

    chunks = [chunk for rows in shards.files.values() for chunk in plan(rows).chunks.items()]
    tasks = [table_task(chunk, partial(parse, texts), len(texts)) for chunk, texts in chunks]
    yield Step("SPICE's parser", "captions", tasks)
    yield shards.step("scene graphs", make_shard, last=False)
    yield Step("synonyms", "files", [table_task(WORDS, make_words)], last=True)
    shards.record_failed(work)
    lengths = [pc.list_value_length(column) for column in shards.read_column(work, "tuples")]
    empty = sum(int(pc.sum(pc.equal(each, 0)).as_py() or 0) for each in lengths)
    work.facts |= {"captions": len(shards.rows), "without_tuples": empty}
    work.excluded.update(name for name in work.names() if name.startswith("chunk-"))


def collapsed(text: str) -> str:
    """Return a text with every run of white space replaced by one space: the parser reads one line per caption."""
    return " ".join(text.split())


def _chunk_table(parsed: Sequence[Parsed]) -> pa.Table:
    tuples = [None if isinstance(each, ParseFailure) else each for each in parsed]
    reasons = [each.reason if isinstance(each, ParseFailure) else None for each in parsed]
    return pa.table({"tuples": pa.array(tuples, TUPLES), FAILED: pa.array(reasons, pa.string())})


def words_table(words: Iterable[str], jar: Path) -> pa.Table:
    """Look up the synonym sets of words.

    The sets of a word are its own and those of its base forms. Base forms are listed in METEOR's table of exceptions,
    or else derived from the word's ending. The words of a phrase are joined by `_`, as in WordNet.

    `words`: repeats allowed. `jar`: METEOR's jar. Returns pyarrow.Table: word string, ascending; synsets list<int32>,
    WordNet's numbers, ascending.
    """
    sets, bases = read_wordnet(jar)
    distinct = sorted(set(words))
    synsets = []
    for word in distinct:
        key = word.strip(_TRIMMED).lower().replace(" ", "_")
        forms = (key, *(bases.get(key) or [find_base_form(key, sets)]))
        synsets.append(sorted({int(s) for form in forms for s in sets.get(form, ())}))
    return pa.table({"word": pa.array(distinct, pa.string()), "synsets": pa.array(synsets, pa.list_(pa.int32()))})


def spelled(tuples: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int8], pa.ChunkedArray]:
    """Split the tuples of captions into words.

    `tuples`: one list per caption, null if it failed. A tuple is (object), (object, attribute) or (subject, object,
    relation). Returns `start`, (N + 1,) int64: the tuples of caption i are ``start[i]:start[i + 1]``; `sizes`, (T,)
    int8: number of words of each tuple, 1 to 3; `words`, (sum of sizes,) string: words as SPICE compares them: a
    leading `be ` of a relation is removed.
    """
    held = pc.fill_null(pc.list_value_length(tuples), 0).to_numpy()
    each = pc.list_flatten(tuples)
    sizes = pc.fill_null(pc.list_value_length(each), 0).to_numpy().astype(np.int8)
    words = pc.list_flatten(each)
    if (len(sizes) and not 1 <= sizes.min() <= sizes.max() <= 3) or words.null_count:
        raise CheckError("a scene-graph tuple does not have one to three words", todo="Encode the label again.")
    # The relation is the last word of a tuple of three.
    relation = np.zeros(len(words), np.bool_)
    relation[np.cumsum(sizes, dtype=np.int64)[sizes == 3] - 1] = True
    bare = pc.replace_substring_regex(words, pattern="^be ", replacement="")
    return indptr_of(held), sizes, pc.if_else(pa.array(relation), bare, words)
