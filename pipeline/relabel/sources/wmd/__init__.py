"""wmd: word mover's distance between captions, with any GloVe or word2vec text file; exact.

A caption is a normalised bag of its words. The distance of two captions is the least total cost of moving the mass of
one caption's words to the other's, where the cost is the Euclidean distance of word vectors. The definition is that of
Kusner, Sun, Kolkin, Weinberger, "From Word Embeddings to Document Distances", ICML 2015. As in the paper, words without
a vector and stop words are left out. Sets of captions have the set distance of Kim et al., "Deep Metric Learning Beyond
Binary Supervision", CVPR 2019, eq. 13.

Relevance is 1 - d / reach, in [0, 1] (see `WmdRelevance`, whose `distances` are not rescaled). A caption without any
word that has a vector is infinitely far from every caption, itself included, and has relevance 0.
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
from relabel.sources.wmd.encode import NAMED, StopWords, WmdTasks, count_words, scale_to_unit_length
from relabel.sources.wmd.relevance import WmdRelevance
from relabel.sources.words.params import WordVectorParams
from relabel.sources.words.shards import VECTORS_FILE, WordBags
from relabel.sources.words.vectors import read_word_vectors
from relabel.store.manifest import Manifest, read_parts, refuse_replaced


class WmdParams(WordVectorParams):
    """Parameters of wmd.

    Examples
    --------
    >>> from relabel.sources.wmd import WmdParams
    >>> params = WmdParams(stop_words="none", unit_vectors=True)
    >>> params.pooling, params.stop_words, params.unit_vectors, params.tokenizer
    ('max', 'none', True, 'ptb')
    """

    source: Literal["wmd"] = "wmd"
    pooling: Pooling = Field(
        "max",
        description="How the distances of an image's references become one: max takes the least (the greatest "
        "relevance); refs is the set distance of the log-ratio paper.",
    )
    stop_words: str = Field(
        "english", description="Words left out: english (function words), none, or a text file with one word per line."
    )
    unit_vectors: bool = Field(False, description="Scale word vectors to length 1; the paper does not.")
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
        """Cut the work into `words.parquet`, the vectors of all words, and shards of bags (see `WmdTasks`).

        Raises
        ------
        MissingError
            If the file of word vectors, the file of stop words or the PTB tokens are missing.
        CheckError
            If the file of word vectors is malformed, or has none of the captions' words.
        """
        p = self.params

        def bags(part: range) -> WordBags:
            rows = slice(part.start, part.stop)
            if p.tokenizer == "ptb":
                return WordBags.from_texts(corpus.ptb_tokens()[rows])
            return WordBags.from_texts([" ".join(lower_split(text)) for text in corpus.read("text", part)])

        file, stop_words = p.find_file(runtime.data), StopWords.of(p.stop_words)
        return WmdTasks(corpus, rows, rows_per_shard, file, bags, stop_words, p.tokenizer, p.unit_vectors)

    @override
    def open(self, encoding: OpenEncoding) -> WmdRelevance:
        """Open an encoding; the file of word vectors is needed only for new texts."""
        table = read_parts(encoding.folder, encoding.manifest, ["words", "counts"])
        indptr = indptr_of(pc.list_value_length(table["words"]).to_numpy())
        words, counts = (pc.list_flatten(table[name]).to_numpy() for name in ("words", "counts"))
        vectors = pq.read_table(encoding.folder / VECTORS_FILE)
        return WmdRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            bags=Bags.of(indptr, words, counts),
            vectors=vectors_from_table(vectors),
            encode_text=_TextEncoder(self.params, encoding.manifest, encoding.runtime, encoding.folder),
            threads=encoding.runtime.threads,
        )


@dataclass
class _TextEncoder:
    """Encoder of new texts (see `WmdRelevance.encode_text`).

    Words that no caption has are looked up in the file of word vectors that the encoding was made with.
    """

    params: WmdParams
    manifest: Manifest
    runtime: Runtime
    folder: Path
    index: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> tuple[list[int], NDArray[np.int64], NDArray[np.float32]]:
        """Return the numbers of a text's words, their counts, and the vectors of the words that no caption has."""
        if not self.index:  # loaded for the first new text
            words = pq.read_table(self.folder / VECTORS_FILE, columns=["word"])["word"].to_pylist()
            refuse_replaced(self.folder, self.manifest)
            self.index.update({word: i for i, word in enumerate(words)})
        stop_words = StopWords.of(self.params.stop_words)
        words = [word for word in self._words(text) if word not in stop_words]
        new = sorted({word for word in words if word not in self.index})
        vectors = self._read_vectors(new)
        # New words are numbered after those of the encoding; words without a vector are left out (-1).
        number = self.index | {word: len(self.index) + i for i, word in enumerate(vectors)}
        ids = np.array([number.get(word, -1) for word in words], np.int64)
        _, distinct, counts = count_words(np.array([0, len(ids)]), ids)
        width = int(self.manifest.facts["width"])
        return distinct.tolist(), counts, np.array(list(vectors.values()), np.float32).reshape(len(vectors), width)

    def _words(self, text: str) -> list[str]:
        """Return the tokens of a text."""
        if self.params.tokenizer == "lower_split":
            return lower_split(text)
        from relabel.corpus.tokenizers import tokenize_text

        return tokenize_text(text).split()

    def _read_vectors(self, words: list[str]) -> dict[str, NDArray[np.float32]]:
        """Read the vectors of words from the file; words that the file lacks are not in the result."""
        if not words:
            return {}
        table = read_word_vectors(self.params.find_file(self.runtime.data, self.manifest), words)
        vectors = scale_to_unit_length(table.vectors) if self.params.unit_vectors else table.vectors
        return {word: vectors[i] for word, i in table.index.items()}
