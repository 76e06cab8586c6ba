"""The work of cider: the vocabulary of all n-grams, then shards of counted n-grams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus, References
from relabel.sources.ngrams.known import KnownGrams
from relabel.sources.ngrams.vocabulary import Grams, grams_of
from relabel.sources.shards import ShardUnits
from relabel.store.units import Advance, Phase, Unit
from relabel.store.work import Work

VOCABULARY = "vocabulary.parquet"


class CiderUnits(ShardUnits):
    """Work on one encoding of cider.

    Making the vocabulary takes about 80 bytes of memory a word beside the corpus: 0.5 GB for the 616,767 captions of
    COCO. Shards need the vocabulary alone, whoever made it.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardUnits.
    documents : References
        Reference sets whose n-grams are counted, by corpus row.
    texts : callable
        Returns the texts of the corpus by row.
    split : callable
        Makes the words of one text.
    n : int
        Longest n-gram.
    said : dict
        What the manifest says of the parameters.
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
        said: dict[str, Any],
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.documents, self.texts, self.split, self.n, self.said = documents, texts, split, n, said
        self._known: KnownGrams | None = None

    @property
    def title(self) -> str:
        """See ShardUnits.title."""
        return f"n-grams ({self.said['tokenizer']})"

    def before(self, work: Work) -> Iterator[Phase]:
        """Number the n-grams of all captions and count documents."""
        yield Phase(f"vocabulary ({self.said['tokenizer']})", "captions", [Unit(VOCABULARY, len(self.rows))])

    def other(self, work: Work, unit: Unit, advance: Advance) -> None:
        """Write the vocabulary."""
        if unit.file != VOCABULARY:
            return super().other(work, unit, advance)
        return work.table(VOCABULARY, self._vocabulary)

    def shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row int32, ngrams and counts list<int32> (ids ascending), words int32."""
        if self._known is None:
            self._known = KnownGrams.of(pq.read_table(work.folder / VOCABULARY), self.n)
        grams = self._known.grams(self.texts()[rows.start : rows.stop], self.split)
        indptr, ids, counts = grams.counts(0, len(rows))
        offsets = pa.array(indptr.astype(np.int32))
        return pa.table(
            {
                "row": np.arange(rows.start, rows.stop, dtype=np.int32),
                "ngrams": pa.ListArray.from_arrays(offsets, pa.array(ids)),
                "counts": pa.ListArray.from_arrays(offsets, pa.array(counts)),
                "words": np.diff(grams.indptr).astype(np.int32),
            }
        )

    def finish(self, work: Work) -> None:
        """Note the facts."""
        super().finish(work)
        empty = sum(int((words.to_numpy() == 0).sum()) for words in self.column(work, "words"))
        work.facts |= self.said | {
            "documents": len(self.documents),
            "ngrams": int(pq.read_metadata(work.folder / VOCABULARY).num_rows),
            "warnings": _warnings(len(self.documents), empty),
        }

    def _vocabulary(self) -> pa.Table:
        used = np.union1d(np.arange(self.rows.start, self.rows.stop), self.documents.rows)
        texts = self.texts()
        grams = grams_of([texts[i] for i in used.tolist()], self.split, self.n)
        local = References(self.documents.indptr, np.searchsorted(used, self.documents.rows).astype(np.int32))
        return _vocabulary_table(grams, grams.document_frequency(local))


def _vocabulary_table(grams: Grams, df: NDArray[np.int32]) -> pa.Table:
    """Make the vocabulary, by n-gram id: spelling, order 1..n, document frequency, and ids of prefix and last word."""
    order = np.repeat(np.arange(1, len(grams.starts)), np.diff(grams.starts)).astype(np.int8)
    columns = {"id": np.arange(len(grams), dtype=np.int32), "ngram": grams.texts(), "order": order, "df": df}
    return pa.table(columns | {"prefix": grams.prefix, "last": grams.last})


def _warnings(documents: int, empty: int) -> list[str]:
    found = []
    if documents == 1:
        found.append("document frequencies come from one image: every idf and every relevance is 0")
    if empty:
        found.append(f"{empty} captions have no words under this tokenizer: their relevance is 0")
    return found
