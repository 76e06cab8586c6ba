"""What encodings made of word vectors begin with: words of each shard's captions, then the vectors of all words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relabel.core.progress import Advance
from relabel.sources.shards import ShardTasks
from relabel.sources.words.bags import WordBags
from relabel.sources.words.files import bags_table, read_bags, value_counts
from relabel.sources.words.vectors import WordVectorsFile
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

VECTORS_FILE = "words.parquet"
"""The words that have a vector, in the order of their file, and their vectors."""


class WordTasks(ShardTasks):
    """Two groups before the shards. A file of word vectors is read once, whoever makes shards."""

    file: WordVectorsFile
    tokenizer: str
    _bags: Callable[[range], WordBags]

    def configure(self, file: WordVectorsFile, bags: Callable[[range], WordBags], tokenizer: str) -> None:
        """Say where vectors are, what cuts the captions of some rows into words, and what manifests call that."""
        self.file, self._bags, self.tokenizer = file, bags, tokenizer
        self._words = {name.replace("part-", "words-"): rows for name, rows in self.parts.items()}

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Cut captions into words, then read the vectors of all words."""
        tasks = [Task(name, len(rows)) for name, rows in self._words.items()]
        yield TaskGroup(f"words ({self.tokenizer})", "captions", tasks)
        yield TaskGroup(f"word vectors ({self.file.name})", "files", [Task(VECTORS_FILE, 1)])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Make the words of a shard, or the vectors of all words."""
        if task.file in self._words:
            work.table(task.file, lambda: bags_table(self._bags(self._words[task.file])))
        elif task.file == VECTORS_FILE:
            work.table(VECTORS_FILE, lambda: self.look_up_vectors(self.count_words(work)))
        else:
            return super().make_other(work, task, advance)
        return None

    def look_up_vectors(self, counts: Counter[str]) -> pa.Table:
        """Look up the vectors of the words that are there: the table that `word_tables.make_vectors_table` makes."""
        raise NotImplementedError

    def read_shard_bags(self, work: Work, rows: range) -> WordBags:
        """Read the words of a shard's rows."""
        return read_bags(work.folder / next(name for name, found in self._words.items() if found == rows))

    def count_words(self, work: Work) -> Counter[str]:
        """How often each word is there, in the order in which they come."""
        counts: Counter[str] = Counter()
        for name in self._words:
            words = pq.read_table(work.folder / name, columns=["words"])["words"]
            for word, count in value_counts(pc.list_flatten(words)):
                counts[word] += count
        return counts

    def record_vectors(self, work: Work) -> pa.Table:
        """Note what the vectors are, leave out the words of shards, return the table of vectors."""
        table = pq.read_table(work.folder / VECTORS_FILE)
        said: dict[str, Any] = {name.decode(): int(value) for name, value in table.schema.metadata.items()}
        work.runtime["vectors"] = self.file.where
        work.facts |= {
            "tokenizer": self.tokenizer,
            "vectors": {"name": self.file.name, "words": said["words"], "duplicates": said["duplicates"]},
            "width": said["width"],
        }
        work.excluded.update(self._words)
        return table
