"""cider: CIDEr-D (the default) or plain CIDEr of a caption against an image's references, exact, for any captions.

CIDEr-D is what pycocoevalcap's `CiderScorer` computes and what papers call CIDEr. Plain CIDEr is what the metric's
authors keep beside it (`pyciderevalcap/cider`): cosines per order, no clipping, no length penalty, no stemming. Both
are means over n = 1..4 and over references, times 10.

Vedantam, Zitnick, Parikh: "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015, eq. 2-4 and section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from relabel.corpus import REFERENCES, Corpus, References
from relabel.runtime import Runtime
from relabel.sources.base import Kind, Pooling, Source, SourceParams
from relabel.sources.ngrams.index import features_of, idf_of
from relabel.sources.ngrams.relevance import CiderRelevance, gauss_of
from relabel.sources.ngrams.structures import Weighting
from relabel.sources.ngrams.vocabulary import Grams, grams_of
from relabel.store.manifest import Manifest, read_parts
from relabel.store.work import Work, part_ranges
from relabel.text import Tokenizer, lower_split

VOCABULARY = "vocabulary.parquet"


class CiderParams(SourceParams):
    """Parameters of cider."""

    source: Literal["cider"] = "cider"
    pooling: Pooling = Field("refs", description="refs and mean are the same: CIDEr of a set is a mean over it.")
    variant: Literal["cider_d", "cider"] = Field(
        "cider_d", description="cider_d clips counts and punishes a difference in length; cider does neither."
    )
    tokenizer: Tokenizer = Field("ptb", description="ptb (lower case, no punctuation) or lower_split.")
    n: int = Field(4, ge=1, le=16, description="Longest n-gram.")
    sigma: float = Field(6.0, gt=0, description="Width of cider_d's length penalty, in words.")
    df: Literal["encoded", "corpus", "train", "val", "test"] = Field(
        "encoded",
        description="Images that count for document frequencies: those encoded, all, or a split's. "
        f"An image's first {REFERENCES} captions are one document.",
    )


class Cider(Source[CiderParams]):
    """CIDEr-D and CIDEr by sparse products."""

    name: ClassVar[str] = "cider"
    kind: ClassVar[Kind] = "features"
    bounds: ClassVar[tuple[float, float]] = (0.0, 10.0)
    symmetric: ClassVar[bool] = False
    version: ClassVar[int] = 1
    params_model: ClassVar[type[SourceParams]] = CiderParams

    def tokenizer(self) -> str | None:
        """See Source.tokenizer."""
        return "ptb" if self.params.tokenizer == "ptb" else None

    def semantic(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """See Source.semantic."""
        return self.params.model_dump(exclude={"pooling"}) | {"references": REFERENCES}

    def encode(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> None:
        """Write `vocabulary.parquet` and shards of counted n-grams (see `_vocabulary_table` and `_shard`).

        The n-grams are numbered anew on every run, which takes seconds; shards and vocabulary that are done are kept.
        About 80 bytes of memory a word beside the corpus: 0.5 GB for the 616,767 captions of COCO.

        Raises
        ------
        MissingError
            If the tokenizer is `ptb` and the corpus has no PTB tokens.
        UsageError
            If `df` names a split that the corpus lacks.
        """
        documents = self._documents(corpus, rows)
        used = np.union1d(np.arange(rows.start, rows.stop), documents.rows)
        texts, split = self._texts(corpus)
        grams = grams_of([texts[i] for i in used.tolist()], split, self.params.n)
        first = int(np.searchsorted(used, rows.start))
        work.table(VOCABULARY, lambda: _vocabulary_table(grams, grams.document_frequency(_local(documents, used))))
        parts = part_ranges(rows, rows_per_shard)
        with runtime.progress.task(f"n-grams ({self.params.tokenizer})", len(rows), "captions") as task:
            for i, part in enumerate(parts):
                work.part(i, len(parts), partial(_shard, grams, part, first + part.start - rows.start))
                task.advance(len(part))
        words = np.diff(grams.indptr)[first : first + len(rows)]
        work.facts |= {
            "tokenizer": self.params.tokenizer,
            "variant": self.params.variant,
            "documents": len(documents),
            "ngrams": len(grams),
            "warnings": _warnings(len(documents), int((words == 0).sum())),
        }

    def open(self, corpus: Corpus, folder: Path, manifest: Manifest, runtime: Runtime) -> CiderRelevance:
        """See Source.open."""
        table = read_parts(folder, manifest, ["ngrams", "counts", "words"])
        vocabulary = pq.read_table(folder / VOCABULARY, columns=["order", "df"])
        order = vocabulary["order"].to_numpy()
        starts = np.searchsorted(order, np.arange(1, self.params.n + 2)).astype(np.int64)
        documents = int(manifest.facts["documents"])
        idf = idf_of(vocabulary["df"].to_numpy(), documents)
        words = table["words"].to_numpy()
        clip = self.params.variant == "cider_d"
        sigma = self.params.sigma if clip else None
        weighting = Weighting(starts, idf, gauss_of(sigma, int(words.max(initial=0))), clip)
        indptr = np.zeros(len(words) + 1, np.int64)
        np.cumsum(pc.list_value_length(table["ngrams"]).to_numpy(), out=indptr[1:])
        ids, counts = (pc.list_flatten(table[name]).to_numpy() for name in ("ngrams", "counts"))
        return CiderRelevance(
            corpus=corpus,
            rows=range(*manifest.facts["rows"]),
            pooling=self.params.pooling,
            features=features_of(indptr, ids, counts, words, weighting),
            weighting=weighting,
            vocabulary_file=folder / VOCABULARY,
            split=self._splitter(runtime),
            unseen_idf=float(np.log(documents)),
            sigma=sigma,
            threads=runtime.threads,
        )

    def _documents(self, corpus: Corpus, rows: range) -> References:
        """Reference sets whose n-grams are counted, by corpus row."""
        if self.params.df == "encoded":
            images = range(int(corpus.image[rows.start]), int(corpus.image[rows.stop - 1]) + 1)
        elif self.params.df == "corpus":
            images = range(len(corpus.image_ids))
        else:
            images = corpus.images([self.params.df])
        return corpus.references(images)

    def _texts(self, corpus: Corpus) -> tuple[list[str], Callable[[str], list[str]]]:
        """What to split into words, and how."""
        if self.params.tokenizer == "lower_split":
            return corpus.texts, lower_split
        return corpus.ptb_tokens(), str.split  # at any white space, as CiderScorer does

    def _splitter(self, runtime: Runtime) -> Callable[[str], list[str]]:
        """Tokenizer of new texts."""
        if self.params.tokenizer == "lower_split":
            return lower_split

        def ptb(text: str) -> list[str]:
            from relabel.ptb import tokenize

            return tokenize([text], runtime)[0].split()

        return ptb


def _local(documents: References, used: np.ndarray[Any, np.dtype[Any]]) -> References:
    return References(documents.indptr, np.searchsorted(used, documents.rows).astype(np.int32))


def _vocabulary_table(grams: Grams, df: np.ndarray[Any, np.dtype[np.int32]]) -> pa.Table:
    """Make the vocabulary, by n-gram id: spelling, order 1..n, document frequency, and ids of prefix and last word."""
    order = np.repeat(np.arange(1, len(grams.starts)), np.diff(grams.starts)).astype(np.int8)
    columns = {"id": np.arange(len(grams), dtype=np.int32), "ngram": grams.texts(), "order": order, "df": df}
    return pa.table(columns | {"prefix": grams.prefix, "last": grams.last})


def _shard(grams: Grams, rows: range, first: int) -> pa.Table:
    """Make one shard: row int32, ngrams and counts list<int32> (ids ascending), words int32."""
    indptr, ids, counts = grams.counts(first, first + len(rows))
    offsets = pa.array(indptr.astype(np.int32))
    return pa.table(
        {
            "row": np.arange(rows.start, rows.stop, dtype=np.int32),
            "ngrams": pa.ListArray.from_arrays(offsets, pa.array(ids)),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(counts)),
            "words": np.diff(grams.indptr[first : first + len(rows) + 1]).astype(np.int32),
        }
    )


def _warnings(documents: int, empty: int) -> list[str]:
    found = []
    if documents == 1:
        found.append("document frequencies come from one image: every idf and every relevance is 0")
    if empty:
        found.append(f"{empty} captions have no words under this tokenizer: their relevance is 0")
    return found
