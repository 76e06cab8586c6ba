"""Source `cider`: exact CIDEr-D (the default) or plain CIDEr of a caption against an image's references.

CIDEr-D is the score of pycocoevalcap's `CiderScorer`; papers call it CIDEr. Plain CIDEr is the variant in
`pyciderevalcap/cider` by the authors of the metric: cosines per order, without clipping, length penalty or stemming.
Both are means over n = 1..4 and over references, times 10.

An encoding consists of the vocabulary of all n-grams and shards of n-gram counts.

Vedantam, Zitnick, Parikh: "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015, eq. 2-4 and section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.numeric.csr import indptr_of
from relabel.core.runtime import Runtime
from relabel.core.tables import plural
from relabel.core.types import Pooling
from relabel.corpus import REFERENCES, Corpus, References
from relabel.corpus.tokenizers import Tokenizer, lower_split, split_words
from relabel.sources.base import Encoding, Source, SourceParams, SourceSpec
from relabel.sources.cider.features import BOUNDS, I4, Weighting, features_of, gauss_of, idf_of
from relabel.sources.cider.ngrams import Vocabulary, number_ngrams
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.scripts import warn_unspaced
from relabel.sources.shards import Shards
from relabel.store.manifest import read_columns, read_parts, view_column
from relabel.store.workdir import Step, Steps, Work, table_task

VOCABULARY = "vocabulary.parquet"


class CiderParams(SourceParams):
    """Parameters of cider."""

    source: Literal["cider"] = "cider"
    pooling: Pooling = Field("set", description="set and mean are equal: CIDEr of a set is the mean over its captions.")
    variant: Literal["cider_d", "cider"] = Field(
        "cider_d", description="cider_d clips counts and penalizes differences in length; cider does neither."
    )
    tokenizer: Tokenizer = Field("ptb", description="ptb (lower case, no punctuation) or lower_split.")
    n: int = Field(4, ge=1, le=16, description="Maximum order of n-grams.")
    sigma: float = Field(6.0, gt=0, le=1e6, description="Width of cider_d's length penalty in words.")
    df: Literal["encoded", "corpus", "train", "val", "test"] = Field(
        "encoded",
        description="Images for document frequencies: the encoded ones, all, or those of a split. "
        f"The first {REFERENCES} captions of an image are one document.",
    )


class Cider(Source[CiderParams]):
    """CIDEr-D and CIDEr from sparse rows of n-grams."""

    _background: tuple[Vocabulary, I4, int] | None = None  # n-grams, their document frequencies, number of documents
    spec = SourceSpec(
        name="cider",
        kind="features",
        bounds=BOUNDS,
        symmetric=False,
        params=CiderParams,
    )

    @override
    def tokenizer(self) -> str | None:
        return "ptb" if self.params.tokenizer == "ptb" else None

    @override
    def with_documents(self, corpus: Corpus, images: range | None = None) -> Cider:
        if self._background is not None:
            return self
        documents = self._documents(corpus, range(len(corpus))) if images is None else corpus.references(images)
        if len(documents) == 1:
            problem = "with only one document, the weight of every n-gram and every CIDEr score are 0"
            hint = "Use the references of several images; in Python, pass them to Scorer or score as documents=."
            raise UsageError(problem, hint=hint)
        counting = Cider(self.params)
        counting._background = (*self._count(corpus, documents), len(documents))
        return counting

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        return self.params.model_dump(exclude={"pooling"}) | {"references": REFERENCES}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the steps of `vocabulary.parquet`, and of shards of n-gram counts.

        In addition to the corpus, the vocabulary takes about 80 bytes of memory per word: 0.5 GB for the 616,767
        captions of COCO. Columns of shards: row int32, ngrams and counts list<int32> (ascending ids), words int32.
        """
        p, background = self.params, self._background
        documents = self._documents(corpus, rows) if background is None else References.of([])
        count = len(documents) if background is None else background[2]
        shards = Shards(corpus, rows, rows_per_shard)
        warn_unspaced(shards, work)
        if count == 1:
            work.warn("document frequencies come from one image: every idf and every relevance is 0")
        vocabulary = cache(lambda: Vocabulary.read(work.folder / VOCABULARY))

        def count_documents() -> pa.Table:
            ngrams, df = self._count(corpus, documents, rows)
            if background is not None:
                numbers = background[0].find(ngrams)
                df[numbers >= 0] = background[1][numbers[numbers >= 0]]
            return ngrams.table(df)

        def make_shard(part: range) -> pa.Table:
            texts, split = self._words(corpus)
            ngrams = number_ngrams(texts[part.start : part.stop], split, p.n)
            indptr, local, counts = ngrams.counts(0, len(part))
            # Ids of the shard and of the corpus have the same order, so ids of a caption stay sorted.
            ids = vocabulary().find(ngrams.vocabulary)[local]
            offsets = pa.array(indptr.astype(np.int32))
            return pa.table(
                {
                    "row": np.arange(part.start, part.stop, dtype=np.int32),
                    "ngrams": pa.ListArray.from_arrays(offsets, pa.array(ids)),
                    "counts": pa.ListArray.from_arrays(offsets, pa.array(counts)),
                    "words": np.diff(ngrams.indptr).astype(np.int32),
                }
            )

        task = table_task(VOCABULARY, count_documents, len(rows))
        yield Step(f"vocabulary ({p.tokenizer})", "captions", [task])
        yield shards.step(f"n-grams ({p.tokenizer})", make_shard)
        empty = sum(int((words.to_numpy() == 0).sum()) for words in shards.read_column(work, "words"))
        work.metadata |= {
            "tokenizer": p.tokenizer,
            "variant": p.variant,
            "documents": count,
            "ngrams": int(pq.read_metadata(work.folder / VOCABULARY).num_rows),
        }
        if empty:
            work.warn(f"{plural(empty, 'caption has', 'captions have')} no words under this tokenizer: relevance 0")

    @override
    def open(self, encoding: Encoding) -> CiderRelevance:
        table = read_parts(encoding.folder, encoding.manifest, ["ngrams", "counts", "words"])
        vocabulary = read_columns(encoding.folder / VOCABULARY, ["order", "df"])
        order = view_column(vocabulary["order"])
        starts = np.searchsorted(order, np.arange(1, self.params.n + 2)).astype(np.int64)
        documents = int(encoding.manifest.metadata["documents"])
        idf = idf_of(view_column(vocabulary["df"]), documents)
        words = view_column(table["words"])
        clip = self.params.variant == "cider_d"
        sigma = self.params.sigma if clip else None
        # The maximum length is a bound on the difference in length of two captions.
        weighting = Weighting(starts, idf, gauss_of(sigma, int(words.max(initial=0))), clip)
        indptr = indptr_of(view_column(pc.list_value_length(table["ngrams"])))
        ids, counts = (view_column(pc.list_flatten(table[name])) for name in ("ngrams", "counts"))
        return CiderRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            features=features_of(indptr, ids, counts, words, weighting),
            weighting=weighting,
            open_vocabulary=partial(Vocabulary.read, encoding.folder / VOCABULARY),
            split=partial(split_words, tokenizer=self.params.tokenizer),
            unseen_idf=float(np.log(documents)),
            sigma=sigma,
            threads=encoding.runtime.threads,
        )

    def _words(self, corpus: Corpus) -> tuple[list[str], Callable[[str], list[str]]]:
        """Return the text of every row, and a function that splits a text into words."""
        # PTB tokens are split at any white space, as in CiderScorer.
        if self.params.tokenizer == "ptb":
            return corpus.tokens, str.split
        return corpus.texts, lower_split

    def _count(self, corpus: Corpus, documents: References, rows: range = range(0)) -> tuple[Vocabulary, I4]:
        """Number the n-grams of rows and documents, and count the documents with each n-gram."""
        # Documents may be outside the encoded rows (`df: train`). Their n-grams are also numbered.
        used, (texts, split) = np.union1d(np.arange(rows.start, rows.stop), documents.rows), self._words(corpus)
        ngrams = number_ngrams([texts[i] for i in used.tolist()], split, self.params.n)
        local = References(documents.indptr, np.searchsorted(used, documents.rows).astype(np.int32))
        return ngrams.vocabulary, ngrams.document_frequency(local)

    def _documents(self, corpus: Corpus, rows: range) -> References:
        """Return the reference sets that are documents, as sets of corpus rows."""
        if self.params.df == "encoded":
            images = range(int(corpus.image[rows.start]), int(corpus.image[rows.stop - 1]) + 1)
        elif self.params.df == "corpus":
            images = range(len(corpus.image_ids))
        else:
            images = corpus.images([self.params.df])
        return corpus.references(images)
