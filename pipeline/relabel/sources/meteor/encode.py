"""Encoding of meteor: shards of normalised captions, then METEOR's tables cut to their words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from typing_extensions import override

from relabel.core.progress import Advance
from relabel.corpus import Corpus
from relabel.sources.meteor.jar import PARAPHRASES, normalise, paraphrase_table
from relabel.sources.meteor.tables import cut_paraphrases, cut_synonyms
from relabel.sources.shards import ShardTasks
from relabel.sources.wordnet import EXCEPTIONS, SYNSETS, find_meteor_jar
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work


class MeteorTasks(ShardTasks):
    """Work on one encoding of meteor.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardTasks.
    language : str
    silence : float
        Seconds without an answer after which Java is considered hung.
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

    Parameters
    ----------
    language : str
    texts : list of str
        Normalised texts.
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
