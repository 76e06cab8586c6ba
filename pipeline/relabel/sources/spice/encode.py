"""The work of spice: every distinct caption parsed, chunk by chunk; the shards; and the words of their tuples.

A chunk is a task: a killed run loses less than a minute, and workers share the chunks of all shards. Chunks are dropped
at the end; a damaged shard needs no chunks but its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.shards import FAILED, mark_failed
from relabel.sources.spice.parser import Parsed, SpiceParser, Unparsed, worker_command
from relabel.sources.spice.synonyms import spelled, words_table
from relabel.sources.text_reuse import TextReuseTasks, text_digests
from relabel.sources.wordnet import find_meteor_jar
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

CHUNK = 500
"""Captions a chunk: ten seconds of an idle core."""
TUPLES = pa.list_(pa.list_(pa.string()))
"""(object), (object, attribute) or (subject, object, relation), in the parser's order, as often as it gives them."""
WORDS = "words.parquet"
"""Beside the shards: see `words_table`. An encoding is read without METEOR's jar."""

_CHUNK = re.compile(r"chunk-(\d{5,})-\d{5,}\.parquet")


class Parses(Protocol):
    """What parses captions (see SpiceParser)."""

    def parse(self, texts: list[str], advance: Callable[[int], None]) -> list[Parsed]:
        """Parse captions, in order."""
        ...


class SpiceTasks(TextReuseTasks):
    """Work on one encoding of spice: row int32, tuples (see `TUPLES`). Tuples of an older encoding are taken over.

    A caption that the parser dies of, refuses or takes too long for is a failed row, its tuples null.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardTasks.
    texts : callable
        The text of every corpus row, as it goes into the parser, but for white space (see `collapsed`).
    runtime : Runtime
        Says where CoreNLP lies.
    heap : str
        Most memory of Java, as `2G`.
    silence : float
        Seconds that one caption may take.
    parser : Parses, optional
        Else SpiceParser's process, started with the first chunk.
    """

    title = "scene graphs"

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        texts: Callable[[], list[str]],
        runtime: Runtime,
        heap: str = "2G",
        silence: float = 120.0,
        parser: Parses | None = None,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self._texts = texts
        self._parser: Parses = parser or SpiceParser(lambda: worker_command(runtime.data, heap), silence)
        self._cut = lru_cache(maxsize=None)(self._cut_anew)

    def start(self, work: Work) -> None:
        """Drop the shards that hold failed rows; what else they hold is kept, as chunks."""
        for name in self.parts:
            if work.done(name) and FAILED in pq.read_schema(work.folder / name).names:
                self._keep(work, name)
        super().start(work)

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Parse the chunks of the shards that are not there."""
        chunks = [chunk for name in self.parts if not work.done(name) for chunk in self._cut(name).chunks.items()]
        yield TaskGroup("SPICE's parser", "captions", [Task(chunk, len(texts)) for chunk, texts in chunks])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Parse one chunk."""
        found = _CHUNK.fullmatch(task.file)
        if found is None:
            return super().make_other(work, task, advance)
        texts = self._cut(list(self.parts)[int(found[1])]).chunks[task.file]
        return work.table(task.file, lambda: _chunk_table(self._parsed(work, texts, advance)))

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Put one shard together."""
        cut = self._cut(next(name for name, part in self.parts.items() if part == rows))
        found = pa.concat_tables([pq.read_table(work.folder / chunk) for chunk in cut.chunks])
        table = found.take(pa.array(cut.place))
        row = pa.array(np.arange(rows.start, rows.stop, dtype=np.int32))
        reasons = {i: reason for i, reason in enumerate(table[FAILED].to_pylist()) if reason is not None}
        return mark_failed(pa.table({"row": row, "tuples": table["tuples"].combine_chunks()}), reasons)

    def finish(self, work: Work) -> None:
        """Note the facts, and leave out the chunks."""
        super().finish(work)
        lengths = [pc.list_value_length(column) for column in self.read_column(work, "tuples")]
        empty = sum(int(pc.sum(pc.equal(each, 0)).as_py() or 0) for each in lengths)
        work.facts |= {"captions": len(self.rows), "without_tuples": empty}
        for name in self.parts:
            work.excluded.update(self._cut(name).chunks)

    @override
    def read_texts(self) -> list[str]:
        return [collapsed(text) for text in self._texts()[self.rows.start : self.rows.stop]]

    def _parsed(self, work: Work, texts: list[str], advance: Advance) -> list[Parsed]:
        """Parse texts, but for those whose tuples an older encoding holds."""
        older = self.previous(work)
        places = older.positions(text_digests(texts)) if older is not None else np.full(len(texts), -1)
        known = np.flatnonzero(places >= 0)
        held: list[Parsed] = []
        if older is not None and len(known):
            held = older.take(places[known])["tuples"].to_pylist()
            advance(len(known))
        found = dict(zip(known.tolist(), held, strict=True))
        new = np.flatnonzero(places < 0).tolist()
        if new:
            found |= zip(new, self._parser.parse([texts[i] for i in new], advance), strict=True)
        return [found[i] for i in range(len(texts))]

    def _keep(self, work: Work, name: str) -> None:
        """Make the chunks of a shard anew from what it holds, but for those in which a caption failed."""
        cut, shard = self._cut(name), pq.read_table(work.folder / name)
        _, first = np.unique(cut.place, return_index=True)  # a row that holds each distinct text
        held, done = shard.select(["tuples", FAILED]).take(pa.array(first)), 0
        for chunk, texts in cut.chunks.items():
            table = held.slice(done, len(texts)).combine_chunks()
            if table[FAILED].null_count == len(texts):
                work.table(chunk, partial(_same, table))
            done += len(texts)

    def _cut_anew(self, name: str) -> _Cut:
        rows = self.parts[name]
        texts = self._texts()
        places: dict[str, int] = {}
        place = [places.setdefault(collapsed(texts[row]), len(places)) for row in rows]
        distinct, shard = list(places), list(self.parts).index(name)
        starts = range(0, len(distinct), CHUNK)
        chunks = {f"chunk-{shard:05d}-{i:05d}.parquet": distinct[a : a + CHUNK] for i, a in enumerate(starts)}
        return _Cut(chunks, np.array(place, np.int64))


class SceneGraphTasks(SpiceTasks):
    """Work on one encoding of spice: the shards of SpiceTasks, and `words.parquet`."""

    derived_files: ClassVar[tuple[str, ...]] = (WORDS,)

    def after_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Look words up."""
        yield from super().after_shards(work)
        yield TaskGroup("synonyms", "files", [Task(WORDS, 1)])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the words, or see SpiceTasks."""
        if task.file != WORDS:
            return super().make_other(work, task, advance)
        return work.table(WORDS, lambda: self._words(work))

    def _words(self, work: Work) -> pa.Table:
        distinct: set[str] = set()
        for column in self.read_column(work, "tuples"):
            distinct.update(pc.unique(spelled(column)[2]).to_pylist())
        return words_table(distinct, find_meteor_jar())


@dataclass(frozen=True)
class _Cut:
    """A shard's distinct texts by chunk, and the place of each row's text among them."""

    chunks: dict[str, list[str]]
    place: NDArray[np.int64]


def collapsed(text: str) -> str:
    """Collapse white space, as goes into the parser: a caption of several lines is still one caption."""
    return " ".join(text.split())


def _same(table: pa.Table) -> pa.Table:
    return table


def _chunk_table(parsed: Sequence[Parsed]) -> pa.Table:
    tuples = [None if isinstance(each, Unparsed) else each for each in parsed]
    reasons = [each.reason if isinstance(each, Unparsed) else None for each in parsed]
    return pa.table({"tuples": pa.array(tuples, TUPLES), FAILED: pa.array(reasons, pa.string())})
