"""Encoding of cider: the vocabulary of all n-grams, then shards of counted n-grams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from relabel.core.progress import Advance
from relabel.corpus import Corpus, References
from relabel.sources.cider.ngrams import Vocabulary, number_ngrams
from relabel.sources.shards import ShardTasks
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

VOCABULARY = "vocabulary.parquet"


class CiderTasks(ShardTasks):
    """Work on one encoding of cider.

    Making the vocabulary takes about 80 bytes of memory per word beside the corpus: 0.5 GB for the 616,767 captions of
    COCO. Shards need nothing but the vocabulary file, so any worker can make any of them.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardTasks.
    documents : References
        Reference sets whose n-grams are counted, by corpus row.
    texts : callable
        Returns the texts of the corpus by row.
    split : callable
        Splits one text into words.
    n : int
        Longest n-gram.
    facts : dict
        Parameters that the manifest repeats among its facts: `tokenizer` and `variant`.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        documents: References,
        texts: Callable[[], list[str]],
        split: Callable[[str], list[str]],
        n: int,
        facts: dict[str, Any],
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.documents, self.texts, self.split, self.n, self.facts = documents, texts, split, n, facts
        self._vocabulary: Vocabulary | None = None

    @property
    @override
    def title(self) -> str:
        return f"n-grams ({self.facts['tokenizer']})"

    @override
    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        yield TaskGroup(f"vocabulary ({self.facts['tokenizer']})", "captions", [Task(VOCABULARY, len(self.rows))])

    @override
    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        if task.file != VOCABULARY:
            return super().make_other(work, task, advance)
        return work.table(VOCABULARY, self._count_documents)

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make one shard: row int32, ngrams and counts list<int32> (ids ascending), words int32."""
        if self._vocabulary is None:
            self._vocabulary = Vocabulary.read(work.folder / VOCABULARY)
        ngrams = number_ngrams(self.texts()[rows.start : rows.stop], self.split, self.n)
        indptr, local, counts = ngrams.counts(0, len(rows))
        # Ids of the shard and of the corpus have the same order, so a caption's ids stay ascending.
        ids = self._vocabulary.find(ngrams.vocabulary)[local]
        offsets = pa.array(indptr.astype(np.int32))
        return pa.table(
            {
                "row": np.arange(rows.start, rows.stop, dtype=np.int32),
                "ngrams": pa.ListArray.from_arrays(offsets, pa.array(ids)),
                "counts": pa.ListArray.from_arrays(offsets, pa.array(counts)),
                "words": np.diff(ngrams.indptr).astype(np.int32),
            }
        )

    @override
    def finish(self, work: Work) -> None:
        super().finish(work)
        empty = sum(int((words.to_numpy() == 0).sum()) for words in self.read_column(work, "words"))
        work.facts |= self.facts | {
            "documents": len(self.documents),
            "ngrams": int(pq.read_metadata(work.folder / VOCABULARY).num_rows),
            "warnings": _warnings(len(self.documents), empty),
        }

    def _count_documents(self) -> pa.Table:
        """Make the vocabulary with document frequencies."""
        # Documents may lie outside the encoded rows (`df: train`). Their n-grams are numbered too.
        used = np.union1d(np.arange(self.rows.start, self.rows.stop), self.documents.rows)
        texts = self.texts()
        ngrams = number_ngrams([texts[i] for i in used.tolist()], self.split, self.n)
        local = References(self.documents.indptr, np.searchsorted(used, self.documents.rows).astype(np.int32))
        return ngrams.vocabulary.table(ngrams.document_frequency(local))


def _warnings(documents: int, empty: int) -> list[str]:
    """Return the warnings that the manifest carries."""
    warnings = []
    if documents == 1:
        warnings.append("document frequencies come from one image: every idf and every relevance is 0")
    if empty:
        warnings.append(f"{empty} captions have no words under this tokenizer: their relevance is 0")
    return warnings
