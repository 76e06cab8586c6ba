"""Source `cbow`: cosine of the mean word vectors of two captions, with any GloVe or word2vec text file.

The mean is over all tokens with a vector. Including other tokens as zeros would change its length, but not its
direction. Ladder Loss (Zhou et al., AAAI 2020, section 4.1) computes labels from GloVe in this way, as does GLUE's CBoW
baseline. The released code of Ladder Loss counts nouns twice (docs/deviations.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.tokenizers import Tokenizer, lower_tokens, tokenize_text
from relabel.sources.base import Encoding
from relabel.sources.cosine import (
    VectorRelevance,
    VectorSource,
    make_vector_spec,
    make_vector_table,
    read_vectors,
    vectors_from_table,
)
from relabel.sources.scripts import warn_unspaced
from relabel.sources.shards import Shards
from relabel.sources.words.params import VECTORS, WordVectorParams
from relabel.sources.words.shards import (
    VECTORS_FILE,
    WordBags,
    count_words,
    record_oov,
    record_vectors,
    vectors_of_words,
    vectors_step,
)
from relabel.sources.words.vectors import look_up
from relabel.store.workdir import Steps, Work

_CAPTIONS = 8192  # captions per product, to limit the memory for sums


class CbowParams(WordVectorParams):
    """Parameters of cbow."""

    source: Literal["cbow"] = "cbow"
    vectors: str = Field("glove", description=VECTORS)
    pooling: Pooling = Field("max", description="Pooling of the scores of an image's references to one score.")
    tokenizer: Tokenizer = Field("ptb", description="ptb or lower_split.")


class Cbow(VectorSource[CbowParams]):
    """Cosine of mean word vectors."""

    spec = make_vector_spec("cbow", CbowParams)

    @override
    def tokenizer(self) -> str | None:
        return "ptb" if self.params.tokenizer == "ptb" else None

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the sha256 of the word vectors."""
        params = self.params.model_dump(include={"source", "tokenizer"})
        return params | {"vectors": self.params.file_fingerprint(runtime.data)}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the steps of shards of unit vectors (see `make_vector_table`), with zeros if no word is known."""
        shards, file = Shards(corpus, rows, rows_per_shard), self.params.find_file(runtime.data)
        warn_unspaced(shards, work)

        @cache
        def vectors() -> tuple[dict[str, int], NDArray[np.float32]]:
            """Return the row of each word, and the vectors of all words."""
            table = pq.read_table(work.folder / VECTORS_FILE)
            return {word: i for i, word in enumerate(table["word"].to_pylist())}, vectors_from_table(table)

        def split(part: range) -> WordBags:
            return WordBags.from_texts(corpus.words(self.params.tokenizer, part))

        def make_shard(part: range) -> pa.Table:
            bags = split(part)
            word_vectors = vectors_of_words(*vectors(), bags.vocabulary)
            unit = np.empty((len(part), word_vectors.shape[1]), np.float32)
            # In batches, because sums are in float64.
            for a in range(0, len(part), _CAPTIONS):
                batch = slice(a, min(a + _CAPTIONS, len(part)))
                unit[batch] = bags.unit_vectors(word_vectors, batch)
                runtime.progress.advance(batch.stop - batch.start)
            return make_vector_table(part, unit)

        counts = cache(partial(count_words, shards, split))
        yield vectors_step(file, lambda: look_up(file, counts(), runtime))
        yield shards.step(f"mean word vectors ({file.name})", make_shard, plain=True)
        zeros = 0
        for column in shards.read_column(work, "vector"):
            # Captions without known words have zero vectors.
            zeros += int((~vectors_from_table(pa.table({"vector": column})).any(axis=1)).sum())
        table = record_vectors(work, file, self.params.tokenizer)
        record_oov(work, counts(), set(table["word"].to_pylist()), zeros)
        # The word vectors are only needed to compute the shards.
        work.excluded.add(VECTORS_FILE)

    @override
    def open(self, encoding: Encoding) -> VectorRelevance:
        """Open the caption vectors. The file of word vectors is only read for new texts."""
        return VectorRelevance(
            encoding.corpus,
            encoding.rows,
            self.params.pooling,
            read_vectors(encoding.folder, encoding.manifest),
            self._text_encoder(encoding),
        )

    def _text_encoder(self, encoding: Encoding) -> Callable[[str], NDArray[np.float32]]:
        """Return a function from a new text to its unit vector, (D,), or zeros if no word is known."""
        runtime, width = encoding.runtime, int(encoding.manifest.metadata["width"])
        cached: dict[str, NDArray[np.float64]] = {}

        def encode(text: str) -> NDArray[np.float32]:
            # Arguments from a terminal may contain surrogates; they are not valid text.
            typed = text.encode(errors="replace").decode()
            tokens = tokenize_text(typed) if self.params.tokenizer == "ptb" else lower_tokens([typed])[0]
            bags = WordBags.from_texts([tokens])
            # Look up only new words, because the file has hundreds of thousands of lines.
            if new := [word for word in bags.vocabulary if word not in cached]:
                read = look_up(self.params.find_file(runtime.data, encoding.manifest), new, runtime)
                cached.update(zip(new, vectors_of_words(read.index, read.vectors, new), strict=True))
            vectors = np.array([cached[word] for word in bags.vocabulary]).reshape(-1, width)
            return bags.unit_vectors(vectors, slice(0, 1)).reshape(width)

        return encode
