"""Encoding of spice: shards of the tuples of captions, then the words of all tuples.

A shard takes about one minute. If it is computed again, parsed texts are in the cache (`parse_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.numeric.csr import indptr_of
from relabel.core.runtime import Progress
from relabel.sources.shards import Shards, mark_failed
from relabel.sources.spice.parse_cache import CachedParser
from relabel.sources.spice.parser import ParseFailure
from relabel.sources.wordnet import find_meteor_jar, find_synsets, read_wordnet
from relabel.store.workdir import Step, Steps, Work, table_task

SHARD = 2000
"""Maximum number of captions per shard: about one minute on an idle core."""
TUPLES = pa.list_(pa.list_(pa.string()))
"""(object), (object, attribute) or (subject, object, relation), in the parser's order, with duplicates."""
WORDS = "words.parquet"
"""File of all words and their synonym sets (see `words_table`). An encoding can be read without METEOR's jar."""

_TRIMMED = "".join(map(chr, range(33)))  # characters that Java's `trim` removes


def encoding_steps(
    shards: Shards, read: Callable[[], list[str]], parser: CachedParser, work: Work, progress: Progress
) -> Steps:
    """Yield the steps of parsing captions: the shards (row int32, tuples of type `TUPLES`), then `WORDS`.

    A caption that crashes the parser, is rejected by it or exceeds the timeout is a failed row with null tuples.

    `read`: returns the text of every corpus row. The parser reads it with collapsed white space (see `collapsed`).
    """

    def make_shard(rows: range) -> pa.Table:
        texts = read()
        parsed = parser.parse([collapsed(texts[row]) for row in rows], progress.advance)
        reasons = {i: each.reason for i, each in enumerate(parsed) if isinstance(each, ParseFailure)}
        tuples = pa.array([None if isinstance(each, ParseFailure) else each for each in parsed], TUPLES)
        row = pa.array(np.arange(rows.start, rows.stop, dtype=np.int32))
        return mark_failed(pa.table({"row": row, "tuples": tuples}), reasons)

    def make_words() -> pa.Table:
        words: set[str] = set()
        for column in shards.read_column(work, "tuples"):
            words.update(pc.unique(spelled(column)[2]).to_pylist())
        return words_table(words, find_meteor_jar())

    yield shards.step("SPICE's parser", make_shard, last=False)
    yield Step("synonyms", "files", [table_task(WORDS, make_words)], last=True)
    shards.record_failed(work)


def collapsed(text: str) -> str:
    """Replace every run of white space by one space, because the parser reads one line per caption."""
    return " ".join(text.split())


def words_table(words: Iterable[str], jar: Path) -> pa.Table:
    """Look up the synonym sets of words. Phrases are joined by `_`, as in WordNet.

    `words`: may contain duplicates. `jar`: METEOR's jar. Returns a table with columns word (string, ascending) and
    synsets (list<int32>, WordNet's numbers, ascending).
    """
    sets, bases = read_wordnet(jar)
    distinct = sorted(set(words))
    synsets = []
    for word in distinct:
        key = word.strip(_TRIMMED).lower().replace(" ", "_")
        synsets.append(sorted(map(int, find_synsets(key, sets, bases))))
    return pa.table({"word": pa.array(distinct, pa.string()), "synsets": pa.array(synsets, pa.list_(pa.int32()))})


def spelled(tuples: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int8], pa.ChunkedArray]:
    """Split the tuples of captions into words.

    `tuples`: one list per caption, or null if it failed. A tuple is (object), (object, attribute) or (subject, object,
    relation). Returns `start`, (N + 1,) int64: the tuples of caption i are ``start[i]:start[i + 1]``; `sizes`, (T,)
    int8: number of words of each tuple, 1 to 3; `words`, (sum of sizes,) string: normalized words. As in SPICE, a
    leading `be ` of a relation is removed.
    """
    held = pc.fill_null(pc.list_value_length(tuples), 0).to_numpy()
    each = pc.list_flatten(tuples)
    sizes = pc.fill_null(pc.list_value_length(each), 0).to_numpy().astype(np.int8)
    words = pc.list_flatten(each)
    if (len(sizes) and not 1 <= sizes.min() <= sizes.max() <= 3) or words.null_count:
        raise CheckError("a scene-graph tuple does not have one to three words", hint="Encode the label again.")
    # In a tuple of three words, the last one is the relation.
    relation = np.zeros(len(words), np.bool_)
    relation[np.cumsum(sizes, dtype=np.int64)[sizes == 3] - 1] = True
    bare = pc.replace_substring_regex(words, pattern="^be ", replacement="")
    return indptr_of(held), sizes, pc.if_else(pa.array(relation), bare, words)
