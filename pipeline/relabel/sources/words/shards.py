"""First tasks of an encoding by word vectors: the words of each shard's captions, then the vectors of all words."""

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
from relabel.sources.words.files import count_values, make_bags_table, read_bags
from relabel.sources.words.vectors import WordVectorsFile
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

VECTORS_FILE = "words.parquet"
"""File of the words that have a vector, in the order of their source file, and of their vectors."""


class WordTasks(ShardTasks):
    """Work with two task groups before the shards, so that a file of word vectors is read once, by one worker.

    A subclass calls `configure` and implements `look_up_vectors`.
    """

    file: WordVectorsFile
    tokenizer: str
    _bags: Callable[[range], WordBags]

    def configure(self, file: WordVectorsFile, bags: Callable[[range], WordBags], tokenizer: str) -> None:
        """Set the inputs of the work.

        Parameters
        ----------
        file : WordVectorsFile
            File of the word vectors.
        bags : callable
            Splits the captions of a range of rows into bags of words.
        tokenizer : str
            Name of the tokenizer in the manifest.
        """
        self.file, self._bags, self.tokenizer = file, bags, tokenizer
        self._words = {name.replace("part-", "words-"): rows for name, rows in self.parts.items()}

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Return the task groups that split captions into words and look up the vectors of all words."""
        tasks = [Task(name, len(rows)) for name, rows in self._words.items()]
        yield TaskGroup(f"words ({self.tokenizer})", "captions", tasks)
        yield TaskGroup(f"word vectors ({self.file.name})", "files", [Task(VECTORS_FILE, 1)])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the words of a shard, or the vectors of all words."""
        if task.file in self._words:
            work.table(task.file, lambda: make_bags_table(self._bags(self._words[task.file])))
        elif task.file == VECTORS_FILE:
            work.table(VECTORS_FILE, lambda: self.look_up_vectors(self.count_words(work)))
        else:
            return super().make_other(work, task, advance)
        return None

    def look_up_vectors(self, counts: Counter[str]) -> pa.Table:
        """Return the vectors of the words that occur, as a table of `make_vectors_table`."""
        raise NotImplementedError

    def read_shard_bags(self, work: Work, rows: range) -> WordBags:
        """Read the bags of words of a shard's rows."""
        return read_bags(work.folder / next(name for name, part in self._words.items() if part == rows))

    def count_words(self, work: Work) -> Counter[str]:
        """Return the number of times each word occurs, in order of first occurrence."""
        counts: Counter[str] = Counter()
        for name in self._words:
            words = pq.read_table(work.folder / name, columns=["words"])["words"]
            # A Counter keeps the order of first insertion, so the order of words does not depend on workers.
            for word, count in count_values(pc.list_flatten(words)):
                counts[word] += count
        return counts

    def record_vectors(self, work: Work) -> pa.Table:
        """Record the vectors in the manifest, exclude the words of shards, and return the table of vectors."""
        table = pq.read_table(work.folder / VECTORS_FILE)
        metadata: dict[str, Any] = {name.decode(): int(value) for name, value in table.schema.metadata.items()}
        work.runtime["vectors"] = self.file.where
        work.facts |= {
            "tokenizer": self.tokenizer,
            "vectors": {"name": self.file.name, "words": metadata["words"], "duplicates": metadata["duplicates"]},
            "width": metadata["width"],
        }
        # The words of shards are needed only to make the other files.
        work.excluded.update(self._words)
        return table
