"""wmd: word mover's distance between captions, on any GloVe or word2vec text file; exact.

A caption is a normalised bag of its words; to make one caption of another, each word's weight travels to words of the
other, and the least total way, by Euclidean distance of word vectors, is the distance (Kusner, Sun, Kolkin, Weinberger:
"From Word Embeddings to Document Distances", ICML 2015). Words without a vector and stop words are left out, as there.
Of caption sets: the set distance of Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, eq. 13.

Relevance is 1 - d / reach in [0, 1] (see `WmdRelevance`, whose `distances` keep their own range).
A caption without a known word is infinitely far from everything, itself included: relevance 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.numeric.csr import indptr_of
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.tokenizers import Tokenizer, lower_split
from relabel.sources.base import OpenEncoding, Source, SourceSpec
from relabel.sources.cosine import vectors_from_table
from relabel.sources.wmd.distance import Bags
from relabel.sources.wmd.encode import WmdTasks, counted, unit_length
from relabel.sources.wmd.relevance import WmdRelevance
from relabel.sources.wmd.stop_words import NAMED, StopWords
from relabel.sources.words.bags import WordBags
from relabel.sources.words.params import WordVectorParams
from relabel.sources.words.shards import VECTORS_FILE
from relabel.sources.words.vectors import read_word_vectors
from relabel.store.manifest import Manifest, read_parts
from relabel.store.reading import refuse_replaced


class WmdParams(WordVectorParams):
    """Parameters of wmd."""

    source: Literal["wmd"] = "wmd"
    pooling: Pooling = Field(
        "max",
        description="How the distances of an image's references become one: max takes the least (the greatest "
        "relevance); refs is the set distance of the log-ratio paper.",
    )
    stop_words: str = Field(
        "english", description="Words left out: english (function words), none, or a text file of one word a line."
    )
    unit_vectors: bool = Field(False, description="Scale word vectors to length 1; the paper takes them as they are.")
    tokenizer: Tokenizer = Field("ptb", description="ptb or lower_split.")

    @override
    def with_absolute_paths(self) -> Self:
        params = super().with_absolute_paths()
        if self.stop_words in NAMED:
            return params
        return params.model_copy(update={"stop_words": str(Path(self.stop_words).absolute())})


class Wmd(Source[WmdParams]):
    """Word mover's distance."""

    spec = SourceSpec(
        name="wmd",
        kind="pairs",
        bounds=(0.0, 1.0),
        symmetric=True,
        version=1,
        params=WmdParams,
    )

    @override
    def tokenizer(self) -> str | None:
        return "ptb" if self.params.tokenizer == "ptb" else None

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        return {
            **self.params.model_dump(include={"source", "tokenizer", "unit_vectors"}),
            "stop_words": StopWords.of(self.params.stop_words).semantic(),
            "vectors": self.params.file_fingerprint(runtime.data),
        }

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> WmdTasks:
        """`words.parquet`, the vectors of all words, and shards of bags (see `WmdTasks`).

        Raises
        ------
        MissingError
            If the word vectors, a file of stop words, or PTB tokens the source asks for, are not there.
        CheckError
            If the file of word vectors is not one, or has none of the captions' words.
        """
        p = self.params

        def bags(part: range) -> WordBags:
            some = slice(part.start, part.stop)
            if p.tokenizer == "ptb":
                return WordBags.from_texts(corpus.ptb_tokens()[some])
            return WordBags.from_texts([" ".join(lower_split(text)) for text in corpus.texts[some]])

        file, stop_words = p.find_file(runtime.data), StopWords.of(p.stop_words)
        return WmdTasks(corpus, rows, rows_per_shard, file, bags, stop_words, p.tokenizer, p.unit_vectors)

    @override
    def open(self, encoding: OpenEncoding) -> WmdRelevance:
        """A new text needs the file of word vectors; all else does not."""
        table = read_parts(encoding.folder, encoding.manifest, ["words", "counts"])
        indptr = indptr_of(pc.list_value_length(table["words"]).to_numpy())
        words, counts = (pc.list_flatten(table[name]).to_numpy() for name in ("words", "counts"))
        known = pq.read_table(encoding.folder / VECTORS_FILE)
        return WmdRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            bags=Bags.of(indptr, words, counts),
            vectors=vectors_from_table(known),
            encode_text=_NewText(self.params, encoding.manifest, encoding.runtime, encoding.folder),
            threads=encoding.runtime.threads,
        )


@dataclass
class _NewText:
    """Words of a new text; those that no caption has are looked up in the file that the encoding was made with."""

    params: WmdParams
    manifest: Manifest
    runtime: Runtime
    folder: Path
    index: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> tuple[list[int], NDArray[np.int64], NDArray[np.float32]]:
        """See WmdRelevance.encode_text."""
        if not self.index:
            words = pq.read_table(self.folder / VECTORS_FILE, columns=["word"])["word"].to_pylist()
            refuse_replaced(self.folder, self.manifest)
            self.index.update({word: i for i, word in enumerate(words)})
        stop_words = StopWords.of(self.params.stop_words)
        words = [word for word in self._words(text) if word not in stop_words]
        new = sorted({word for word in words if word not in self.index})
        found = self._vectors_of(new)
        number = self.index | {word: len(self.index) + i for i, word in enumerate(found)}
        ids = np.array([number.get(word, -1) for word in words], np.int64)
        _, known, counts = counted(np.array([0, len(ids)]), ids)
        width = int(self.manifest.facts["width"])
        return known.tolist(), counts, np.array(list(found.values()), np.float32).reshape(len(found), width)

    def _words(self, text: str) -> list[str]:
        if self.params.tokenizer == "lower_split":
            return lower_split(text)
        from relabel.corpus.tokenizers import tokenize

        return tokenize([text], self.runtime)[0].split()

    def _vectors_of(self, words: list[str]) -> dict[str, NDArray[np.float32]]:
        if not words:
            return {}
        found = read_word_vectors(self.params.find_file(self.runtime.data, self.manifest), words)
        vectors = unit_length(found.vectors) if self.params.unit_vectors else found.vectors
        return {word: vectors[i] for word, i in found.index.items()}
